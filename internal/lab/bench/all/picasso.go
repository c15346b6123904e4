package all

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/picasso"
	"github.com/weir-project/weir/internal/lab/report"
)

// skippedError names the missing program that a section needs.
type skippedError struct{ missing string }

func (e *skippedError) Error() string { return "left out: " + e.missing }

const (
	picassoDuration = 3 * time.Second
	picassoStarts   = 1
	picassoOrders   = 2
	// picassoOnce is about how long all takes that rounds do not repeat: engines, images and the competition.
	picassoOnce = 215 * time.Second
)

var picassoNodes = []int{picasso.PaperNodes}

// wholePicasso reports whether PiCasso is measured for a page that can be published.
func (o Options) wholePicasso() bool { return o.Publish && !o.Short }

// picasso returns the options of the PiCasso suite. A page of claims has the paper's sizes, of which a node answers in a
// quarter of a minute what it can: five rounds have to end in one evening with others, as PiCasso is kept only when complete.
// A part of half an hour has room for less.
func (o Options) picasso() picasso.Options {
	p := picasso.Options{
		Parts: picasso.Parts(), Requests: 400, For: 2 * time.Second, Users: []int{picasso.SmallestCrowd, picasso.PaperCrowd, 1000},
		Starts: max(picassoStarts, o.Repeat), CompetitionLinkBPS: picasso.UplinkBPS, Nodes: picassoNodes, Orders: picassoOrders, RunOptions: o.RunOptions,
	}
	if o.wholePicasso() {
		p.Requests, p.For, p.Users = 10_000, 15*time.Second, []int{picasso.SmallestCrowd, picasso.PaperCrowd, 500, 1000}
	}
	return p
}

// picassoTime returns about how long PiCasso takes: an hour on a page of claims.
func picassoTime(o Options) (needed, more time.Duration) {
	return picassoOnce + time.Duration(o.Repeat)*o.picasso().RoundTime(), 0
}

// lastPicasso returns how long each load of the competition lasts, whatever runs of others take.
func lastPicasso(time.Duration) time.Duration { return picassoDuration }

// picassoFlags returns the flags of weir bench picasso for the same runs.
func (o Options) picassoFlags() string {
	p := o.picasso()
	return fmt.Sprintf("--requests %d --for %v --users %s --repeat %d --starts %d --duration %v --nodes %s --orders %d",
		p.Requests, p.For, commas(p.Users), p.Repeat, p.Starts, p.Duration, commas(p.Nodes), p.Orders)
}

// picassoOnly returns the flag for the part that a claim of PiCasso needs.
func picassoOnly(_ Options, where string) string {
	if part := picasso.PartOf(where); part != "" {
		return "--parts " + part
	}
	return ""
}

// commas returns numbers as a flag takes them.
func commas(numbers []int) string {
	texts := make([]string, len(numbers))
	for i, one := range numbers {
		texts[i] = strconv.Itoa(one)
	}
	return strings.Join(texts, ",")
}

// runPicasso runs the PiCasso suite, without the parts whose programs are missing.
func runPicasso(ctx context.Context, all Options) (report.Result, error) {
	if !all.Docker {
		return nil, &skippedError{"its nodes are Docker engines, and --no-docker was given"}
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		return nil, &skippedError{"dockerd is not installed: apt-get install docker.io"}
	}
	if _, err := exec.LookPath("nginx"); err != nil && all.wholePicasso() {
		return nil, &skippedError{"nginx is not installed, and half of the claims are about it: apt-get install nginx-light"}
	}
	o := all.picasso()
	missing := ""
	if o.EdgeBinary, missing = edgePrograms(all.WeirBinary); missing != "" {
		o.Parts = slices.DeleteFunc(o.Parts, func(part string) bool { return picasso.NeedsEdge([]string{part}) })
	}
	found, err := picasso.Run(ctx, o)
	if missing != "" {
		found.AddGap(fmt.Sprintf("The parts %s and %s were left out: %s.", picasso.PartCompetition, picasso.PartMemory, missing))
	}
	return found, err
}

// edgePrograms returns the path of weir-edge, or what is missing for it.
func edgePrograms(weir string) (edge, missing string) {
	if _, err := exec.LookPath("haproxy"); err != nil {
		return "", "haproxy is not installed: apt-get install haproxy"
	}
	edge, err := picasso.FindEdge(weir)
	if err != nil {
		return "", "weir-edge is neither beside weir nor in PATH"
	}
	return edge, ""
}
