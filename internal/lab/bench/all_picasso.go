package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"
)

// skippedError says what a section needs that is not there.
type skippedError struct{ missing string }

func (e *skippedError) Error() string { return "left out: " + e.missing }

// Of the paper's runs, what a part of half an hour has room for.
const (
	allPicassoRequests = 400
	allPicassoFor      = 2 * time.Second
	allPicassoDuration = 3 * time.Second
)

// runAllPicasso leaves out what there are no programs for.
func runAllPicasso(ctx context.Context, all AllOptions) (finding, error) {
	if !all.Docker {
		return finding{}, &skippedError{"its nodes are Docker engines, and --no-docker was given"}
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		return finding{}, &skippedError{"dockerd is not installed: apt-get install docker.io"}
	}
	o := PicassoOptions{
		Parts: PicassoParts(), Requests: allPicassoRequests, For: allPicassoFor, Users: []int{smallestCrowd, paperCrowd, 1000}, Starts: 1,
		Duration: allPicassoDuration, CompetitionLinkBPS: picassoUplinkBPS, Nodes: []int{picassoNodes}, Orders: 2, Until: all.Until,
		WeirBinary: all.WeirBinary, Version: all.Version, Command: all.Command, Progress: all.Progress,
	}
	missing := ""
	if o.EdgeBinary, missing = edgePrograms(all.WeirBinary); missing != "" {
		o.Parts = slices.DeleteFunc(o.Parts, func(part string) bool { return NeedsEdge([]string{part}) })
	}
	found, err := RunPicasso(ctx, o)
	if missing != "" {
		found.Note = joined(found.Note, fmt.Sprintf("The parts %s and %s were left out: %s.", PicassoCompetition, PicassoMemory, missing))
	}
	return finding{found.Report, found, found.Failed()}, err
}

// edgePrograms finds weir-edge, or says what is not there that it needs.
func edgePrograms(weir string) (edge, missing string) {
	if _, err := exec.LookPath("haproxy"); err != nil {
		return "", "haproxy is not installed: apt-get install haproxy"
	}
	edge, err := FindEdge(weir)
	if err != nil {
		return "", "weir-edge is neither beside weir nor in PATH"
	}
	return edge, ""
}
