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

// Of the paper's runs, what a part of half an hour has room for.
const (
	picassoRequests = 400
	picassoFor      = 2 * time.Second
	picassoDuration = 3 * time.Second
	picassoStarts   = 1
	picassoOrders   = 2
	// picassoRound is about how many seconds the crowds of one round take.
	picassoRound = 190
)

var (
	picassoUsers = []int{picasso.SmallestCrowd, picasso.PaperCrowd, 1000}
	picassoNodes = []int{picasso.PaperNodes}
)

// lastPicasso returns how long each load of the competition lasts, whatever runs of others take.
func lastPicasso(time.Duration) time.Duration { return picassoDuration }

// picassoFlags returns the flags of weir bench picasso for the same runs.
func (o Options) picassoFlags() string {
	return fmt.Sprintf("--requests %d --for %v --users %s --repeat %d --starts %d --duration %v --nodes %s --orders %d",
		picassoRequests, picassoFor, commas(picassoUsers), o.Repeat, o.starts(), o.Duration, commas(picassoNodes), picassoOrders)
}

// starts returns how often each server is started: once a round.
func (o Options) starts() int { return max(picassoStarts, o.Repeat) }

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
	o := picasso.Options{
		Parts: picasso.Parts(), Requests: picassoRequests, For: picassoFor, Users: picassoUsers, Starts: all.starts(),
		CompetitionLinkBPS: picasso.UplinkBPS, Nodes: picassoNodes, Orders: picassoOrders, RunOptions: all.RunOptions,
	}
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
