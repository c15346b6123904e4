package vm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

func TestKernelReleases(t *testing.T) {
	names := strings.Fields(`linux-image-6.1.0-47-cloud-amd64 linux-image-6.1.0-50-cloud-amd64
		linux-image-6.1.0-50-cloud-amd64-unsigned linux-image-6.1.0-50-amd64 linux-image-6.1.0-50-cloud-arm64
		linux-image-6.1.0-9-cloud-amd64 linux-image-6.12.95+deb12-cloud-amd64
		linux-image-6.12.90+deb12-cloud-amd64 linux-image-6.12.90+deb12.1-cloud-amd64
		linux-image-6.12.9+deb12-cloud-amd64 linux-image-6.12.95+deb12-rt-amd64 linux-image-6.12.95+deb12-arm64-16k
		linux-image-6.12.95+deb12-armmp linux-image-6.12.95+deb12-armmp-lpae linux-image-6.12.95+deb12-rt-armmp`)
	for _, test := range []struct {
		series, arch string
		want         []string
	}{
		{"6.1", "amd64", []string{"6.1.0-50-cloud-amd64", "6.1.0-47-cloud-amd64", "6.1.0-9-cloud-amd64"}},
		{"6.1", "arm64", []string{"6.1.0-50-cloud-arm64"}},
		{"6.12", "amd64", []string{
			"6.12.95+deb12-cloud-amd64", "6.12.90+deb12.1-cloud-amd64",
			"6.12.90+deb12-cloud-amd64", "6.12.9+deb12-cloud-amd64",
		}},
		{"6.12", "arm64", nil},
		{"6.12", armhf, []string{"6.12.95+deb12-armmp"}},
	} {
		if got := kernelReleases(names, test.series, test.arch); !slices.Equal(got, test.want) {
			t.Errorf("%s %s: got %v, want %v", test.series, test.arch, got, test.want)
		}
	}
}

func TestSplitPackages(t *testing.T) {
	const whole = "dracut | initramfs-tools (>= 0.120), kmod, linux-base-7.2.13-amd64 (= 7.2.13-1)"
	if got := splitPackages(whole, "7.2.13-amd64"); got != nil {
		t.Errorf("of a kernel in one package: got %v", got)
	}
	const split = whole + ", linux-binary-7.2.13-amd64 (= 7.2.13-1), linux-modules-7.2.13-amd64 (= 7.2.13-1)"
	want := []string{"linux-base-7.2.13-amd64", "linux-binary-7.2.13-amd64", "linux-modules-7.2.13-amd64"}
	if got := splitPackages(split, "7.2.13-amd64"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// console is what machines print, where ^ stands for the byte that marks the
// testing package's own lines.
func console(t *testing.T, text string) Console {
	t.Helper()
	c, err := ParseConsole(t.Context(), strings.ReplaceAll(strings.ReplaceAll(text, "^", "\x16"), "\n", "\r\n"))
	must.Succeed(t, err)
	return c
}

const goodRun = `weir-vm: kernel 6.1.0
weir-vm: begin netns
^=== RUN   TestA
^=== RUN   TestA/one
^--- PASS: TestA/one (1.00s)
^=== NAME  TestA
^=== RUN   TestA/two
    a_test.go:7: this kernel has none
^--- SKIP: TestA/two (0.00s)
^=== NAME  TestA
^--- PASS: TestA (1.00s)
^=== NAME
PASS
weir-vm: end netns 0
weir-vm: log
[    0.1] hello
weir-vm: done
`

func TestConsole(t *testing.T) {
	c := console(t, goodRun)
	if c.Release != "6.1.0" || len(c.Problems) > 0 || c.Log != "[    0.1] hello\n" {
		t.Errorf("got %+v", c)
	}
	leaves := c.leaves()
	if len(leaves) != 2 || leaves[0].Test != "TestA/one" || leaves[0].Action != "pass" || leaves[0].Seconds != 1 ||
		leaves[1].Test != "TestA/two" || leaves[1].Action != "skip" || leaves[1].skipReason() != "this kernel has none" {
		t.Errorf("got %+v", leaves)
	}
}

// TestConsoleOfBadRuns: nothing that goes wrong in a machine looks like a
// success.
func TestConsoleOfBadRuns(t *testing.T) {
	for _, test := range []struct {
		name, text string
		problem    string // wanted among Problems
		failed     string // wanted among the failed tests
	}{
		{"nothing at all", "", "before its time", ""},
		{"kernel panics before the tests", "[ 1.0] Kernel panic - not syncing\n", "before its time", ""},
		{"machine dies in a test", strings.SplitAfter(goodRun, "TestA/two\n")[0], "netns did not end", "TestA/two"},
		{"program panics", strings.SplitAfter(goodRun, "TestA/two\n")[0] +
			"panic: oh\nweir-vm: end netns 2\nweir-vm: log\nweir-vm: done\n", "", "TestA/two"},
		{"no test", "weir-vm: begin netns\nPASS\nweir-vm: end netns 0\nweir-vm: done\n", "ran no test", ""},
		{"failure outside of tests", strings.Replace(goodRun, "end netns 0", "end netns 1", 1), "ended with status 1", ""},
		{"module not loaded", "weir-vm: problem cannot load module veth\n" + goodRun, "cannot load module veth", ""},
		{"kernel complains", strings.Replace(goodRun, "hello", "WARNING: CPU: 0 PID: 1 at net/core/dev.c", 1), "the kernel logged: WARNING", ""},
		{"test fails", strings.Replace(goodRun, "--- PASS: TestA/one", "--- FAIL: TestA/one", 1), "", "TestA/one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := console(t, test.text)
			if test.problem != "" && !strings.Contains(strings.Join(c.Problems, "\n"), test.problem) {
				t.Errorf("problems are %q, want %q", c.Problems, test.problem)
			}
			failed := slices.ContainsFunc(c.leaves(), func(r Result) bool { return r.Action == "fail" && r.Test == test.failed })
			if test.failed != "" && !failed {
				t.Errorf("got %+v, want %s to have failed", c.leaves(), test.failed)
			}
		})
	}
}

// TestDisk: another program reads what we write.
func TestDisk(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("busybox is not installed: nothing else here reads archives of cpio's")
	}
	d := NewDisk()
	d.Add("a/b/file", []byte("odd"))
	d.Link("a/link", "b/file")
	d.Directory("empty")
	d.Console()
	var archive bytes.Buffer
	if _, err := d.WriteTo(&archive); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(busybox, "cpio", "-t")
	cmd.Stdin = &archive
	out, err := cmd.Output()
	must.Succeed(t, err)
	want := []string{"a", "a/b", "a/b/file", "a/link", "dev", "dev/console", "empty"}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestLibrariesAreFound: a program's libraries, its loader too, come along.
func TestLibrariesAreFound(t *testing.T) {
	const ldd = `	linux-vdso.so.1 (0x00007ffd)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f3b)
	/lib64/ld-linux-x86-64.so.2 (0x00007f3b)
`
	var got []string
	for _, m := range library.FindAllStringSubmatch(ldd, -1) {
		got = append(got, m[1])
	}
	if want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestForeignLibrariesAreBelowUsr: all that a program of another architecture loads is below /usr, which is
// all that the proxies of services see of a machine.
func TestForeignLibrariesAreBelowUsr(t *testing.T) {
	name, err := exec.LookPath("bash")
	must.Succeed(t, err)
	out, err := run(exec.CommandContext(t.Context(), "ldd", name))
	must.Succeed(t, err)
	f := foreign{programs: map[string][]byte{}, libraries: map[string][]byte{}, disk: NewDisk()}
	for _, m := range library.FindAllStringSubmatch(out, -1) {
		data, err := os.ReadFile(m[1])
		must.Succeed(t, err)
		must.Succeed(t, f.keep("usr/lib/any/"+filepath.Base(m[1]), "", bytes.NewReader(data)))
	}
	program, err := os.ReadFile(name)
	must.Succeed(t, err)
	must.Succeed(t, f.addLibraries(program))
	links := 0
	for name, file := range f.disk.files {
		if file.mode == modeLink {
			links++
			name = clean(string(file.data))
		}
		if _, there := f.disk.files[name]; !there || !strings.HasPrefix(name, "usr/") {
			t.Errorf("%s is not below /usr", name)
		}
	}
	if links != 1 {
		t.Errorf("%d files lead to the loader", links)
	}
}

// TestSkipsOnMachinesAreFailures: unless the kernel cannot do it. A pattern that
// finds nothing is one as well.
func TestSkipsOnMachinesAreFailures(t *testing.T) {
	result := func(test, action string) Result { return Result{Suite: "netns", Test: test, Action: action} }
	m := Machine{Series: "6.1", MaySkip: "^netns/TestTCX$", Suites: []Suite{
		{Package: "./test/netns", Run: "TestModes/^(bridge|host)$/UDP|TestShares/10_Mbit|TestTCX"},
	}}
	good := []Result{result("TestModes/bridge/UDP", "pass"), result("TestModes/host/UDP", "pass"), result("TestShares/10_Mbit/x", "pass"), result("TestTCX", "skip")}
	if problems := m.unmet(good); len(problems) > 0 {
		t.Errorf("a good run has problems: %q", problems)
	}
	for name, test := range map[string]struct {
		results []Result
		want    string
	}{
		"a skip":                 {append(good, result("TestModes/macvlan/UDP", "skip")), "TestModes/macvlan/UDP must run on kernel 6.1"},
		"a skip of the parent":   {append([]Result{result("TestModes/bridge", "skip")}, good[1:]...), "TestModes/bridge must run"},
		"a test that is gone":    {good[:3], "no test of ./test/netns is called TestTCX"},
		"a subtest that is gone": {append([]Result{result("TestModes/bridge/TCP", "pass")}, good[1:]...), "is called TestModes/^bridge$/UDP"},
		"another that is gone":   {append([]Result{good[0]}, good[2:]...), "is called TestModes/^host$/UDP"},
		"of another suite":       {append([]Result{{Suite: "identity", Test: "TestModes/host/UDP", Action: "pass"}}, good[2:]...), "is called TestModes/^host$/UDP"},
	} {
		if problems := strings.Join(m.unmet(test.results), "\n"); !strings.Contains(problems, test.want) {
			t.Errorf("%s: problems are %q, want %q", name, problems, test.want)
		}
	}
}

// TestAlternatives: a pattern means each of its alternatives, in brackets too.
func TestAlternatives(t *testing.T) {
	for pattern, want := range map[string]string{
		".": ".", "A|B/^c$": "A B/^c$", "A/^(b|c)$/D|E": "A/^b$/D A/^c$/D E", "A(b|c)?$": "A$ Ab$ Ac$", "A(b|c(d|e))/(f|g)": "Ab/f Ab/g Acd/f Acd/g Ace/f Ace/g",
	} {
		if got := strings.Join(alternatives(pattern), " "); got != want {
			t.Errorf("%s: %q, want %q", pattern, got, want)
		}
	}
}

// TestEveryMachineIsWhole: what the matrix names is there to be compiled.
func TestEveryMachineIsWhole(t *testing.T) {
	for _, m := range append(inGate(), Machines...) {
		for _, s := range m.Suites {
			if strings.ContainsAny(s.Run+s.Skip, " \t") || s.Run == "" {
				t.Errorf("%s: guest/init cannot read %+v", m.Name(), s)
			}
			if s.Tag != TagNetNS && s.Tag != TagDocker {
				t.Errorf("%s: no tag of tests: %+v", m.Name(), s)
			}
			if _, err := os.Stat(filepath.Join("../..", s.Package)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestMachinesAtOnce: small machines run one at a time.
func TestMachinesAtOnce(t *testing.T) {
	for _, test := range []struct {
		processors, gigabytes, want int
	}{
		{1, 24, 1}, {2, 1, 1}, {2, 4, 1}, {2, 6, 1}, {2, 8, 2}, {2, 24, 2}, {4, 8, 2}, {4, 12, 4}, {64, 24, 10},
	} {
		if got := machinesAtOnce(test.processors, uint64(test.gigabytes)<<30); got != test.want {
			t.Errorf("%d processors, %d GB: %d machines, want %d", test.processors, test.gigabytes, got, test.want)
		}
	}
}
