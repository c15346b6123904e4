package picasso

import (
	"archive/zip"
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/test/must"
)

func validOptions() Options {
	return Options{Parts: Parts(), Requests: 100, For: time.Second, Users: []int{5}, Starts: 1, Nodes: []int{4, 6}, Orders: 2, CompetitionLinkBPS: 20e6, RunOptions: measure.RunOptions{Duration: 2 * time.Second, Repeat: 1}}
}

func TestPicassoCheck(t *testing.T) {
	if err := validOptions().Check(); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*Options){
		`unknown part "figure3": choose from success`: func(o *Options) { o.Parts = []string{"figure3"} },
		"nothing to measure":                          func(o *Options) { o.Parts = nil },
		"100 requests or more":                        func(o *Options) { o.Requests = 99 },
		"each server is started":                      func(o *Options) { o.Starts = 0 },
		"each crowd comes":                            func(o *Options) { o.Repeat = 0 },
		"a second or more":                            func(o *Options) { o.For = time.Millisecond },
		"2s or more":                                  func(o *Options) { o.Duration = time.Second },
		"1 to 100 times":                              func(o *Options) { o.Orders = 0 },
		"4 to 8 nodes, an even number":                func(o *Options) { o.Nodes = []int{4, 5} },
		"begins with the fewest":                      func(o *Options) { o.Nodes = []int{6, 4} },
		"1mbit to 1gbit":                              func(o *Options) { o.CompetitionLinkBPS = 1000 },
		"1 to 5000 users":                             func(o *Options) { o.Users = []int{5, 0} },
	} {
		o := validOptions()
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}

// asPaper is a run in which all is as in the paper.
func asPaper() Report {
	r := Report{EngineSeconds: []float64{3.37}, Starts: map[string][]float64{serverNano: {1.42}, serverBusybox: {1.46}, serverNginx: {1.44}, serverHeavy: {1.48}}}
	for _, one := range []struct {
		server string
		users  int
		failed int
	}{{serverNano, 5, 2}, {serverNano, 100, 7541}, {serverBusybox, 500, 6515}, {serverNginx, 1000, 0}, {serverHeavy, 1000, 0}} {
		r.Crowds = append(r.Crowds, Crowd{Server: one.server, Layout: "1Con-1Pi", Figure3: true, Users: one.users, Requests: 10000, Failed: one.failed})
	}
	times := map[layout]float64{{1, 1}: 1000, {2, 1}: 1000, {4, 1}: 1050, {2, 2}: 449.9, {4, 4}: 227.5}
	loads := map[layout]float64{{1, 1}: 30, {2, 1}: 40, {4, 1}: 70, {2, 2}: 20, {4, 4}: 10}
	cpus := map[layout]float64{{1, 1}: 90, {2, 1}: 101, {4, 1}: 104, {2, 2}: 60, {4, 4}: 40}
	for server, of := range map[string]struct{ cpu, ms float64 }{serverBusybox: {1, 1}, serverNginx: {2.0 / 3, 0.14}, serverHeavy: {1, 1847.0 / 1050}} {
		for l, ms := range times {
			r.Crowds = append(r.Crowds, Crowd{
				Server: server, Layout: l.String(), Users: PaperCrowd, Requests: 10000, MeanMS: ms * of.ms,
				NodeCPUPercent: cpus[l] * of.cpu, ContainerCPUPercents: slices.Repeat([]float64{cpus[l] * of.cpu * float64(l.pis) / float64(l.containers)}, l.containers),
				NodeLoad: loads[l], NodeLoadMost: loads[l], MemoryBytes: uint64(l.containers) * 10e6,
			})
		}
	}
	r.ImageBytes = map[string]uint64{serverNano: 88e3, serverBusybox: 2.16e6, serverNginx: 368e6, serverHeavy: 251e6}
	for _, server := range []string{serverBusybox, serverNginx} {
		for replicas := 1; replicas <= capacityMost; replicas *= 2 {
			r.Capacity = append(r.Capacity, Crowd{Server: server, Layout: layout{replicas, 1}.String(), ArrivalsPerS: 5, Requests: 100, NodeCPUPercent: 12 * float64(replicas)})
		}
	}
	return r
}

func TestPicassoClaims(t *testing.T) {
	r := asPaper()
	r.CrowdRequests, r.CrowdSeconds = 10000, 15
	r.complete()
	if want := "at most 10000 requests, and begins none after 15 s"; !strings.Contains(r.Note, want) {
		t.Errorf("the note does not say %q: %s", want, r.Note)
	}
	if len(r.Claims) != 23 {
		t.Errorf("there are %d claims, want 23", len(r.Claims))
	}
	for _, claim := range r.Claims {
		want := report.Reproduced
		switch {
		case claim.Where == "table I", strings.HasPrefix(claim.Says, serverNano+" answers"):
			want = report.NotMeasured // by other builds, and by a stand-in
		}
		if claim.Section == "" || PartOf(claim.Where) == "" {
			t.Errorf("%s, %s: section %q, part %q", claim.Where, claim.Says, claim.Section, PartOf(claim.Where))
		}
		if claim.Judgement != want {
			t.Errorf("%s, %s: %s, want %s: %s", claim.Where, claim.Says, claim.Judgement, want, claim.Reason)
		}
	}
	if len(r.Verdicts) != 0 {
		t.Errorf("verdicts without a competition: %+v", r.Verdicts)
	}

	// Nothing was measured: nothing is claimed.
	empty := Report{}
	empty.complete()
	for _, claim := range empty.Claims {
		if claim.Judgement != report.NotMeasured {
			t.Errorf("%s of nothing: %s", claim.Where, claim.Judgement)
		}
	}

}

// TestPicassoOtherResults: other results than the paper's are not reproduced, also where nothing changes at all.
func TestPicassoOtherResults(t *testing.T) {
	// in returns a change of the crowds of a server in a layout.
	in := func(server string, l layout, change func(*Crowd)) func(*Report) {
		return func(r *Report) {
			for i := range r.Crowds {
				if keyOf(r.Crowds[i]) == crowdOf(server, l) {
					change(&r.Crowds[i])
				}
			}
		}
	}
	four := layout{4, 1}
	for name, test := range map[string]struct {
		change func(*Report)
		says   string
	}{
		"replicas shorten by a tenth": {in(serverBusybox, four, func(c *Crowd) { c.MeanMS = 900 }), "busybox: replicas on the same node do not"},
		"users of four nodes give up": {in(serverHeavy, layout{4, 4}, func(c *Crowd) { c.MeanMS, c.Failed = 100, 9000 }), "nginx and tomcat gain as well"},
		"the same processor":          {in(serverNginx, four, func(c *Crowd) { c.NodeCPUPercent = 60 }), "More containers on one node use significantly more of its processor"},
		"the same memory":             {in(serverHeavy, four, func(c *Crowd) { c.MemoryBytes = 10e6 }), "More containers on one node use significantly more of its memory"},
		"the same load":               {in(serverBusybox, four, func(c *Crowd) { c.NodeLoad = 30 }), "More containers on one node significantly raise its load"},
		"one of four does all":        {in(serverNginx, four, func(c *Crowd) { c.ContainerCPUPercents = []float64{0, 0, 69, 0} }), "With two containers on a node each uses half"},
		"two are enough for busybox":  {in(serverBusybox, layout{2, 1}, func(c *Crowd) { c.ContainerCPUPercents = []float64{46, 47} }), "busybox needs four containers"},
		"nginx is slow":               {in(serverNginx, layout{1, 1}, func(c *Crowd) { c.MeanMS = 142 }), "A single nginx container responds within 140 ms"},
		"tomcat is fast":              {in(serverHeavy, four, func(c *Crowd) { c.MeanMS = 1300 }), "tomcat's response time reaches 1847 ms"},
		"no number of replicas is too many": {func(r *Report) {
			for i := range r.Capacity {
				r.Capacity[i].NodeCPUPercent = 50
			}
		}, "An edge node handles a number of replicas"},
		"no number is few enough": {func(r *Report) {
			for i := range r.Capacity {
				r.Capacity[i].Failed = 50
			}
		}, "An edge node handles a number of replicas"},
	} {
		r := asPaper()
		test.change(&r)
		r.complete()
		i := slices.IndexFunc(r.Claims, func(c report.Claim) bool { return strings.HasPrefix(c.Says, test.says) })
		if i < 0 || r.Claims[i].Judgement != report.NotReproduced || r.Claims[i].Reason == "" {
			t.Errorf("%s: claim %d of %+v", name, i, r.Claims)
		}
	}
}

// TestPicassoIdeals: a value's ideal is what a perfect server or the paper's theory has, not what the paper measured.
func TestPicassoIdeals(t *testing.T) {
	r := asPaper()
	r.complete()
	for _, test := range []struct {
		where, name string
		ideal       float64 // 0: none
	}{
		{"figure 3", "busybox, 500 users", 100},
		{"figure 7", "busybox, 2Con-2Pi", 50},
		{"figure 7", "busybox, 4Con-4Pi", 75},
		{"figure 7", "nginx, 4Con-4Pi", 75},
		{"figure 6", "nginx, 1Con-1Pi", 0},
		{"figure 8", "heavy, 4Con-1Pi", 0},
		{"figure 9", "engine", 0},
		{"table I", "nano", 0},
	} {
		found := 0
		for _, c := range r.Claims {
			for _, v := range c.Values {
				if c.Where != test.where || v.Name != test.name {
					continue
				}
				if found++; (v.Ideal == nil) != (test.ideal == 0) || v.Ideal != nil && *v.Ideal != test.ideal {
					t.Errorf("%s, %s: ideal of %+v, want %g", test.where, test.name, v, test.ideal)
				}
			}
		}
		if found == 0 {
			t.Errorf("%s has no value %s", test.where, test.name)
		}
	}
}

// TestPicassoTomcat: claims about tomcat name the server that ran, and have that server's numbers.
func TestPicassoTomcat(t *testing.T) {
	about := func(r Report, says string) string {
		i := slices.IndexFunc(r.Claims, func(c report.Claim) bool { return strings.HasPrefix(c.Says, says) })
		if i < 0 || r.Claims[i].Judgement != report.Reproduced {
			t.Fatalf("%s: %+v", says, r.Claims)
		}
		return r.Claims[i].About
	}
	const others, all = "busybox: replicas", "nginx and tomcat answer all requests"
	r := asPaper()
	r.Missing = map[string]string{serverTomcat: "it is not installed; heavy stands for it"}
	r.complete()
	if got := about(r, all); !strings.Contains(got, "in place of tomcat") || strings.Contains(about(r, others), "tomcat") {
		t.Errorf("a stand-in: %q", got)
	}
	if want := "tomcat was not measured: it is not installed; heavy stands for it."; !slices.Contains(r.Gaps, want) {
		t.Errorf("gaps: %q", r.Gaps)
	}
	standIn := r.Claims
	r = asPaper()
	r.Tomcat = "10.1.60"
	r.Starts[serverTomcat] = r.Starts[serverHeavy]
	delete(r.Starts, serverHeavy)
	for i := range r.Crowds {
		if r.Crowds[i].Server == serverHeavy {
			r.Crowds[i].Server = serverTomcat
		}
	}
	r.ImageBytes[serverTomcat] = r.ImageBytes[serverHeavy]
	delete(r.ImageBytes, serverHeavy)
	r.complete()
	if len(r.Claims) != len(standIn) {
		t.Fatalf("%d claims, with a stand-in %d", len(r.Claims), len(standIn))
	}
	for i, c := range r.Claims {
		if c.Judgement != standIn[i].Judgement || len(c.Values) != len(standIn[i].Values) {
			t.Errorf("%s, %s: %s, with a stand-in %s", c.Where, c.Says, c.Judgement, standIn[i].Judgement)
		}
		for _, v := range c.Values {
			if v.Measured == nil || strings.HasPrefix(v.Name, serverHeavy) {
				t.Errorf("%s, %s: %s was not measured", c.Where, c.Says, v.Name)
			}
		}
	}
	for _, says := range []string{all, "tomcat: replicas", "tomcat drives", "An engine starts", "nginx and tomcat gain"} {
		if got := about(r, says); !strings.HasSuffix(got, "tomcat is tomcat 10.1.60") {
			t.Errorf("%s: about %q", says, got)
		}
	}
	if about(r, others) != "servers and nodes, without the agent" || strings.Contains(r.Note, serverHeavy) || !strings.Contains(r.Note, "Debian's 10.1.60") {
		t.Errorf("busybox is about %q; note: %s", about(r, others), r.Note)
	}
}

// TestTomcatFiles: an image has what Java and tomcat need to run, through links, and no more.
func TestTomcatFiles(t *testing.T) {
	dir := t.TempDir()
	one := tomcat{home: filepath.Join(dir, "tomcat"), javaHome: filepath.Join(dir, "java")}
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
	}
	var jar bytes.Buffer
	archive := zip.NewWriter(&jar)
	properties, err := archive.Create("org/apache/catalina/util/ServerInfo.properties")
	must.Succeed(t, err)
	_, err = properties.Write([]byte("server.info=Apache Tomcat/10.1.60 (Debian)\nserver.number=10.1.60.0\n"))
	must.Succeed(t, errors.Join(err, archive.Close()))
	if _, err := tomcatVersion(one.home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no tomcat: %v", err)
	}
	write("share/catalina-10.jar", jar.String())
	for _, name := range []string{"java/bin/java", "java/bin/javac", "java/lib/server/libjvm.so", "java/lib/libawt_xawt.so", "java/lib/ct.sym", "java/conf/net.properties", "tomcat/bin/bootstrap.jar", "tomcat/lib/api.jar"} {
		write(name, "")
	}
	must.Succeed(t, os.Symlink("../../share/catalina-10.jar", filepath.Join(one.home, "lib/catalina.jar")))
	must.Succeed(t, os.Symlink("../../share/gone.jar", filepath.Join(one.home, "lib/gone.jar")))
	if version, err := tomcatVersion(one.home); err != nil || version != "10.1.60" {
		t.Errorf("version %q: %v", version, err)
	}
	files, err := one.files()
	must.Succeed(t, err)
	var got []string
	for _, path := range slices.Sorted(maps.Keys(files)) {
		got = append(got, strings.TrimPrefix(path, dir+"/"))
	}
	want := []string{"java/bin/java", "java/conf/net.properties", "java/lib/server/libjvm.so", "tomcat/bin/bootstrap.jar", "tomcat/lib/api.jar", "tomcat/lib/catalina.jar"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPicassoRounds: of three rounds every number of the paper's crowds has its median, its lowest and its highest; without
// the part that has figure 3 nothing of it is judged.
func TestPicassoRounds(t *testing.T) {
	r := asPaper()
	for name, starts := range r.Starts {
		r.Starts[name] = append(starts, starts[0]*1.1)
	}
	r.EngineSeconds = append(r.EngineSeconds, 4)
	once := slices.Clone(r.Crowds)
	for round, factor := range []float64{0.9, 1.1} {
		for i, c := range once {
			varied := factor + 0.01*float64(i%7) // layouts are compared
			c.MeanMS *= varied
			c.NodeCPUPercent *= varied
			c.ContainerCPUPercents = slices.Clone(c.ContainerCPUPercents)
			for i := range c.ContainerCPUPercents {
				c.ContainerCPUPercents[i] *= varied
			}
			c.NodeLoad *= varied
			c.NodeLoadMost *= varied
			c.MemoryBytes = uint64(float64(c.MemoryBytes) * varied)
			c.Failed = min(c.Requests, int(float64(c.Failed)*factor)+10*round)
			r.Crowds = append(r.Crowds, c)
		}
	}
	r.Format = report.Format
	r.complete()
	stored := must.Reread(t, r, func(text []byte, into *Report) error { return report.Parse(text, into) })
	if stored.JudgeAgain(); !reflect.DeepEqual(stored.Claims, r.Claims) {
		t.Error("a stored report is judged otherwise")
	}
	for _, claim := range r.Claims {
		if claim.Where == "table I" || claim.Where == whereCapacity { // without rounds
			continue
		}
		for _, v := range claim.Values {
			if v.Low == nil || v.High == nil || *v.Low >= *v.High || *v.Low > *v.Measured || *v.High < *v.Measured {
				t.Errorf("%s, %s: %s has no interval: %+v", claim.Where, claim.Says, v.Name, v)
			}
		}
	}
	// One container's processor rises; two run for a moment longer, and one of their moments came late.
	for i := range r.Crowds {
		switch c := &r.Crowds[i]; keyOf(*c) {
		case crowdOf(serverBusybox, layout{1, 1}):
			c.Moments = []Moment{{Seconds: 0.25, ContainerCPUPercent: 50, NodeLoad: 1, MemoryBytes: 1e6}, {Seconds: 0.5, ContainerCPUPercent: 90, NodeLoad: 2, MemoryBytes: 2e6}}
		case crowdOf(serverBusybox, layout{2, 1}):
			// The first container's own, not a half of the node's.
			c.Moments = []Moment{{Seconds: 0.25, NodeCPUPercent: 100, ContainerCPUPercent: 40}, {Seconds: 0.75, ContainerCPUPercent: 45}, {Seconds: 1, ContainerCPUPercent: 50}}
		}
	}
	curves := r.curves()
	if len(curves) != 4 || len(curves[3].Panels) != 1 {
		t.Fatalf("%d curves", len(curves))
	}
	panel := curves[3].Panels[0]
	got := [][]float64{panel.X}
	for _, values := range panel.Values {
		var row []float64
		for _, v := range values {
			if v == nil {
				v = report.Number(-1)
			}
			row = append(row, *v)
		}
		got = append(got, row)
	}
	if want := [][]float64{{0.25, 0.5, 0.75, 1}, {50, 90, -1, -1}, {40, 42.5, 45, 50}, {-1, -1, -1, -1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("figure 6: %v, want %v", got, want)
	}
	if memory := *curves[2].Panels[0].Values[0][1]; memory != 2 {
		t.Errorf("figure 5: %g MB", memory)
	}
	r.Capacity = nil
	// Of three rounds two find a node of two replicas exhausted, by its processor or by answers that did not come.
	for i, one := range []Crowd{{NodeCPUPercent: 60}, {NodeCPUPercent: 97}, {NodeCPUPercent: 70, Failed: 2}, {NodeCPUPercent: 94, Failed: 1}} {
		one.Server, one.Layout, one.ArrivalsPerS, one.Requests = serverNginx, layout{min(i, 1) + 1, 1}.String(), 5, 100
		r.Capacity = append(r.Capacity, one)
	}
	rows := r.capacityTable().Rows
	if len(rows) != 2 || rows[0][8] != "no" || rows[1][8] != "yes" || rows[1][6] != "94" || rows[1][3] != "99.00" {
		t.Errorf("capacity: %v", rows)
	}
	values := map[string]int{}
	for _, q := range r.Quantities {
		values[q.Case+q.Name] += len(q.Values)
	}
	if n := values[serverBusybox+", 4Con-4Pi, 100 usersresponse time"]; n != 3 {
		t.Errorf("%d values of a quantity, want 3: %v", n, values)
	}

	r = asPaper()
	r.Crowds = slices.DeleteFunc(r.Crowds, func(c Crowd) bool { return c.Figure3 })
	r.complete()
	for _, claim := range r.Claims {
		if withheld := claim.Where == "figure 3" || claim.Where == "table I"; withheld != (claim.Judgement == report.NotMeasured) {
			t.Errorf("without figure 3: %s, %s: %s", claim.Where, claim.Says, claim.Judgement)
		}
	}
}

func TestPicassoVerdicts(t *testing.T) {
	r := Report{
		Minimum:   &MinimumKept{40e6, 39.5e6},
		EdgeNodes: 10, EdgePeakBytes: 61e6,
	}
	add := func(s scenario, order int, placedBy string, load userLoad, ms, bps float64) {
		r.Competition = append(r.Competition, Competitor{
			PlacedBy: placedBy, Scenario: s.String(), Differ: s.differ(), Order: order, Load: load.name, UserMeanMS: ms, PayloadBPS: bps,
		})
	}
	loads := userLoads()
	closed, open := loads[0], loads[len(loads)-1]
	// 40 and 129 % on four nodes, over both orders; 20 and 200 % on six.
	add(halfBusy(4), 0, placedBySwarm, closed, 10, 50e6)
	add(halfBusy(4), 0, placedByWeir, closed, 20, 64.5e6)
	add(halfBusy(4), 1, placedBySwarm, closed, 90, 50e6)
	add(halfBusy(4), 1, placedByWeir, closed, 20, 64.5e6)
	add(halfBusy(6), 0, placedBySwarm, closed, 100, 50e6)
	add(halfBusy(6), 0, placedByWeir, closed, 20, 100e6)
	// An order that only one side was measured in counts for neither.
	add(halfBusy(6), 1, placedBySwarm, closed, 1, 500e6)
	// Where nodes do not differ nothing but minimums is judged.
	add(allBusy(4), 0, placedBySwarm, closed, 1, 500e6)
	add(allBusy(4), 0, placedByWeir, closed, 100, 1e6)
	add(halfBusy(4), 0, placedBySwarm, open, 100, 10e6)
	add(halfBusy(4), 0, placedByWeir, open, 41, 10e6)
	r.complete()
	want := []struct {
		target, measured, where string
		met                     bool
	}{
		{"response time under competition, " + closed.name, "40.0 %", "4 nodes, 2 busy: 20 ms, Swarm 50 ms", true},
		{"throughput under competition, " + closed.name, "129.0 %", "4 nodes, 2 busy: 64.5 Mbit/s, Swarm 50.0", false},
		{"response time under competition, " + open.name, "41.0 %", "4 nodes, 2 busy: 41 ms, Swarm 100 ms", false},
		{"minimum of all users of a service together", "98.75 %", "4 nodes, 4 busy: 39.500 of 40.0 Mbit/s", false},
		{"memory of weir-edge with 10 nodes", "61.0 MB", "the most it had; 0.0 MB at the end", false},
	}
	if len(r.Verdicts) != len(want) {
		t.Fatalf("%d verdicts, want %d: %+v", len(r.Verdicts), len(want), r.Verdicts)
	}
	for i, w := range want {
		if v := r.Verdicts[i]; v.Target != w.target || v.Measured != w.measured || v.Where != w.where || v.Met != w.met || (v.Change != "") != (strings.HasSuffix(v.Target, closed.name) && !v.Met) {
			t.Errorf("got %+v, want %+v", v, w)
		}
	}
}

// TestPicassoRoles: one half of the nodes is busy, one of them has a camera, and every second
// order is the other half.
func TestPicassoRoles(t *testing.T) {
	for _, nodes := range []int{4, 6, 10} {
		s := halfBusy(nodes)
		for order := 0; order < 8; order += 2 {
			one, turned := s.roles(order), s.roles(order+1)
			count := map[role]int{}
			for node := range nodes {
				count[one[node]]++
				if (one[node] == idle) == (turned[node] == idle) {
					t.Errorf("%s, order %d: node %d has the same part in the order turned round: %v %v", s, order, node, one, turned)
				}
			}
			if count[idle] != nodes/2 || count[camera] != 1 {
				t.Errorf("%s, order %d: %v", s, order, one)
			}
			if !slices.Equal(one, s.roles(order)) {
				t.Errorf("%s, order %d is another one the second time", s, order)
			}
		}
	}
	for _, r := range allBusy(4).roles(0) {
		if r != backup {
			t.Errorf("all are busy: %v", allBusy(4).roles(0))
		}
	}
}

// TestArrivalTimes: as many as there should be, in order, and not in step.
func TestArrivalTimes(t *testing.T) {
	times := arrivalTimes(100, 100*time.Second, 1)
	if n := len(times); n < 9_600 || n > 10_400 { // four standard deviations
		t.Errorf("%d arrivals in 100 s, want 10000", n)
	}
	if !slices.IsSorted(times) || times[len(times)-1] >= 100*time.Second {
		t.Error("arrivals are not in order, or too late")
	}
	short := 0
	for i := range times[1:] {
		if times[i+1]-times[i] < 5*time.Millisecond {
			short++
		}
	}
	// 1 - exp(-1/2) of all gaps are shorter than half of the mean.
	if part := float64(short) / float64(len(times)); part < 0.36 || part > 0.43 {
		t.Errorf("%.3f of all gaps are shorter than half of the mean, want 0.393", part)
	}
	minBPS := 8e6
	if got := userLoads()[2].arrivalsPerSecond(minBPS) * framesOf(shopPageBytes) * 8; got < 0.4999*minBPS || got > 0.5001*minBPS {
		t.Errorf("users ask for %g bit/s, want half of %g", got, minBPS)
	}
}

// TestAnswered: each instance's users count the same; those who gave up have waited as long
// as they do.
func TestAnswered(t *testing.T) {
	var c Competitor
	c.answered([]profile.Answers{
		{Requests: 90, Mean: 10 * time.Millisecond, P95: 20 * time.Millisecond, Took: time.Second},
		{Requests: 11, Failed: 1, Mean: time.Second, P95: 2 * time.Second, Took: time.Second},
		{Requests: 4, Failed: 4, Took: time.Second},
	})
	if math.Abs(c.UserMeanMS-(10+15000/11.0+5000)/3) > 1e-6 || math.Abs(c.MeanMS-(90*10+15000+20000)/105.0) > 1e-6 || c.P95MS != 2000 || c.RequestsPerS != 100 || c.Requests != 105 || c.Failed != 5 {
		t.Errorf("got %+v", c)
	}
}
