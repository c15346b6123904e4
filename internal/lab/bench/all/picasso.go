package all

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/picasso"
)

// skippedError says what a section needs that is not there.
type skippedError struct{ missing string }

func (e *skippedError) Error() string { return "left out: " + e.missing }

// Of the paper's runs, what a part of half an hour has room for.
const (
	picassoRequests = 400
	picassoFor      = 2 * time.Second
	picassoDuration = 3 * time.Second
)

// runPicasso leaves out what there are no programs for.
func runPicasso(ctx context.Context, all Options) (finding, error) {
	if !all.Docker {
		return finding{}, &skippedError{"its nodes are Docker engines, and --no-docker was given"}
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		return finding{}, &skippedError{"dockerd is not installed: apt-get install docker.io"}
	}
	o := picasso.Options{
		Parts: picasso.Parts(), Requests: picassoRequests, For: picassoFor, Users: []int{picasso.SmallestCrowd, picasso.PaperCrowd, 1000}, Starts: 1,
		Duration: picassoDuration, CompetitionLinkBPS: picasso.UplinkBPS, Nodes: []int{picasso.PaperNodes}, Orders: 2, Until: all.Until,
		WeirBinary: all.WeirBinary, Version: all.Version, Command: all.Command, Progress: all.Progress,
	}
	missing := ""
	if o.EdgeBinary, missing = edgePrograms(all.WeirBinary); missing != "" {
		o.Parts = slices.DeleteFunc(o.Parts, func(part string) bool { return picasso.NeedsEdge([]string{part}) })
	}
	found, err := picasso.Run(ctx, o)
	if missing != "" {
		found.Note = measure.Joined(found.Note, fmt.Sprintf("The parts %s and %s were left out: %s.", picasso.PartCompetition, picasso.PartMemory, missing))
	}
	return finding{found.Report, found, found.Failed()}, err
}

// edgePrograms finds weir-edge, or says what is not there that it needs.
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
