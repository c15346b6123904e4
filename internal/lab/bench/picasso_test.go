package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/report"
)

func picassoOptions() PicassoOptions {
	return PicassoOptions{Parts: PicassoParts(), Requests: 100, For: time.Second, Duration: time.Second, Users: []int{5}, Starts: 1, CompetitionLinkBPS: 20e6}
}

func TestPicassoCheck(t *testing.T) {
	if err := picassoOptions().Check(); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*PicassoOptions){
		`unknown part "figure3": choose from success`: func(o *PicassoOptions) { o.Parts = []string{"figure3"} },
		"nothing to measure":                          func(o *PicassoOptions) { o.Parts = nil },
		"100 requests or more":                        func(o *PicassoOptions) { o.Requests = 99 },
		"started once or more":                        func(o *PicassoOptions) { o.Starts = 0 },
		"a second or more":                            func(o *PicassoOptions) { o.For = time.Millisecond },
		"1mbit to 1gbit":                              func(o *PicassoOptions) { o.CompetitionLinkBPS = 1000 },
		"1 to 5000 users":                             func(o *PicassoOptions) { o.Users = []int{5, 0} },
	} {
		o := picassoOptions()
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

// asPaper is a run in which all is as in the paper.
func asPaper() PicassoReport {
	r := PicassoReport{EngineSeconds: []float64{3.37}, Starts: map[string][]float64{serverNano: {1.42}, serverBusybox: {1.46}, serverNginx: {1.44}, serverHeavy: {1.48}}}
	for _, one := range []struct {
		server string
		users  int
		failed int
	}{{serverNano, 5, 2}, {serverNano, 100, 7541}, {serverBusybox, 500, 6515}, {serverNginx, 1000, 0}, {serverHeavy, 1000, 0}} {
		r.Crowds = append(r.Crowds, PicassoCrowd{Server: one.server, Layout: "1Con-1Pi", Figure3: true, Users: one.users, Requests: 10000, Failed: one.failed})
	}
	times := map[layout]float64{{1, 1}: 1000, {2, 1}: 1000, {4, 1}: 1050, {2, 2}: 449.9, {4, 4}: 227.5}
	cpus := map[layout]float64{{1, 1}: 80, {2, 1}: 85, {4, 1}: 90, {2, 2}: 60, {4, 4}: 40}
	for _, server := range []string{serverBusybox, serverNginx, serverHeavy} {
		for l, ms := range times {
			r.Crowds = append(r.Crowds, PicassoCrowd{
				Server: server, Layout: l.String(), Users: paperCrowd, Requests: 10000, MeanMS: ms,
				NodeCPUPercent: cpus[l], ContainerCPUPercent: cpus[l] * float64(l.pis) / float64(l.containers),
			})
		}
	}
	return r
}

func TestPicassoClaims(t *testing.T) {
	r := asPaper()
	r.complete()
	if len(r.Claims) != 14 {
		t.Errorf("there are %d claims, want 14", len(r.Claims))
	}
	for _, claim := range r.Claims {
		want := report.Reproduced
		if claim.Where == "table I" {
			want = report.NotReproducible
		}
		if claim.Judgement != want {
			t.Errorf("%s, %s: %s, want %s: %s", claim.Where, claim.Says, claim.Judgement, want, claim.Reason)
		}
	}
	if len(r.Verdicts) != 0 {
		t.Errorf("verdicts without a competition: %+v", r.Verdicts)
	}

	// Nothing was measured: nothing is claimed.
	empty := PicassoReport{}
	empty.complete()
	for _, claim := range empty.Claims {
		if claim.Judgement != report.NotMeasured && claim.Where != "table I" {
			t.Errorf("%s of nothing: %s", claim.Where, claim.Judgement)
		}
	}

	// Replicas on one node that halve the response time are no finding of the paper's.
	r = asPaper()
	r.crowd(false, serverBusybox, layout{4, 1}, paperCrowd).MeanMS = 500
	r.complete()
	i := slices.IndexFunc(r.Claims, func(c report.Claim) bool {
		return strings.HasPrefix(c.Says, serverBusybox+": replicas on the same node")
	})
	if r.Claims[i].Judgement != report.NotReproduced || r.Claims[i].Reason == "" {
		t.Errorf("got %+v", r.Claims[i])
	}
}

func TestPicassoVerdicts(t *testing.T) {
	r := PicassoReport{
		Competition: []PicassoCompetitor{{PlacedBy: placedBySwarm, MeanMS: 100, PayloadBPS: 100e6}, {PlacedBy: placedByWeir, MeanMS: 40, PayloadBPS: 129e6}},
		Minimums:    []PicassoMinimumKept{{"node0", 40e6, 41e6}, {"node1", 40e6, 39.5e6}},
	}
	r.complete()
	met := []bool{true, false, false}
	for i, v := range r.Verdicts {
		if v.Met != met[i] {
			t.Errorf("%s: %s, met %v", v.Target, v.Measured, v.Met)
		}
	}
	if len(r.Verdicts) != 3 || r.Verdicts[2].Where != "node1" {
		t.Errorf("got %+v", r.Verdicts)
	}
}
