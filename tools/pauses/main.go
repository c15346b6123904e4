// Command pauses runs a test binary and stops its helpers at random for 50 to 500 ms, as a busy
// machine does: engines, proxies, shells, traffic. A test that depends on their speed fails.
//
//	go test -tags netns -exec "$PWD/bin/pauses -log FILE" -run TestShares ./test/netns
//
// What a test judges is never stopped, see judged and untouched. FILE gets a line for each test:
// result, name, pauses. The same seed draws the same numbers, but processes start when
// they do. What it has stopped it continues before it ends, also after a signal.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// look is the time between two draws.
	look = 20 * time.Millisecond
	// newChance is for a process that was not there before, oldChance for any other: a pause every
	// three seconds or so.
	newChance, oldChance = 1. / 8, 1. / 160

	leastPause, mostPause = 50 * time.Millisecond, 500 * time.Millisecond
)

// judged matches the command lines of processes that tests judge or measure with. What a sender, a
// service, its proxy or a switch does not send while it stands still, others get, and users wait for,
// rightly.
var judged = regexp.MustCompile(`^(weir (agent|bench|demo)|weir-edge (run|profile|repository)|weir[- ]sdn (run|queues)|` +
	`haproxy|ovs-vswitchd|weir-lab (bench|demo|traffic (pages|pauses|ping|port|send|stream))) `)

// untouched are programs that are not stopped during a test, by the beginning of their names.
var untouched = map[string]string{
	// The test stops it itself: to continue it would undo that.
	"TestDatabaseHangs":                    "ovsdb-server",
	"TestAgentWithDocker/a_published_port": "dockerd",
	// The test judges how fast an engine restarts what has ended.
	"TestSwarm/ended_and_restarted":     "",
	"TestOneEngine/ended_and_restarted": "",
	// The test judges how fast weir-edge is, whose ledger the engine has.
	"TestLinks": "dockerd",
}

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "pauses:", err)
	}
	os.Exit(code)
}

// run returns the exit code of the command.
func run(args []string) (int, error) {
	flags := flag.NewFlagSet("pauses", flag.ContinueOnError)
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "of the draws")
	logPath := flags.String("log", os.DevNull, "file to append a line for each test to")
	if err := flags.Parse(args); err != nil {
		return 2, err
	}
	if flags.NArg() == 0 {
		return 2, errors.New("want a command")
	}
	log, err := os.OpenFile(*logPath, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return 2, err
	}
	defer log.Close()
	// Processes that give up their parent remain descendants.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 2, fmt.Errorf("become the parent of orphans: %w", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)

	command := exec.Command(flags.Arg(0), flags.Args()[1:]...)
	command.Stdin, command.Stderr = os.Stdin, os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return 2, err
	}
	if err := command.Start(); err != nil {
		return 2, err
	}
	fmt.Fprintf(os.Stderr, "pauses: seed %d\n", *seed)
	p := &pauser{test: command.Process.Pid, program: command.Path, tests: map[string]*running{}, end: make(chan struct{})}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.follow(out, os.Stdout, log)
	}()
	p.all.Go(func() { p.draw(rand.New(rand.NewPCG(*seed, 0))) })
	go func() {
		for s := range signals {
			_ = command.Process.Signal(s)
		}
	}()
	code, err := reap(p.test)
	close(p.end)
	p.all.Wait()
	select {
	case <-read:
	case <-time.After(time.Second): // a process that it left behind has its output open
	}
	return code, err
}

// reap collects all descendants that end, until pid ends, and returns its exit code.
func reap(pid int) (int, error) {
	for {
		var status syscall.WaitStatus
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 2, fmt.Errorf("wait for the command: %w", err)
		case ended != pid:
		case status.Signaled():
			return 128 + int(status.Signal()), nil
		default:
			return status.ExitStatus(), nil
		}
	}
}

type pauser struct {
	test    int    // process ID of the test binary
	program string // its path
	all     sync.WaitGroup
	end     chan struct{} // closed when the test binary has ended

	mu    sync.Mutex
	tests map[string]*running // by name
}

// running is a test that has begun.
type running struct {
	latest string   // its latest subtest, or itself
	pauses []string // while it ran
}

var (
	begun = regexp.MustCompile(`^\x16?=== RUN +(([^/\s]+)\S*)`)
	done  = regexp.MustCompile(`^\x16?--- (PASS|FAIL|SKIP): (\S+)`)
)

// follow copies the test binary's output and notes which tests run.
func (p *pauser) follow(from io.Reader, to, log io.Writer) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		_, _ = io.WriteString(to, line)
		p.mu.Lock()
		if m := begun.FindStringSubmatch(line); m != nil {
			if p.tests[m[2]] == nil {
				p.tests[m[2]] = &running{}
			}
			p.tests[m[2]].latest = m[1]
		} else if m := done.FindStringSubmatch(line); m != nil && p.tests[m[2]] != nil {
			fmt.Fprintln(log, m[1], m[2], strings.Join(p.tests[m[2]].pauses, ", "))
			delete(p.tests, m[2])
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// draw stops descendants of the test binary until it ends.
func (p *pauser) draw(random *rand.Rand) {
	known := map[string]bool{}
	for tick := time.NewTicker(look); ; {
		select {
		case <-p.end:
			return
		case <-tick.C:
		}
		present := map[string]bool{}
		for _, pid := range descendants("self") {
			present[pid] = true
			chance := newChance
			if known[pid] {
				chance = oldChance
			}
			if random.Float64() < chance {
				length := leastPause + time.Duration(random.Int64N(int64(mostPause-leastPause)))
				p.all.Go(func() { p.pause(pid, length) })
			}
		}
		known = present
	}
}

// pause stops a process for a time, unless it is one that the tests judge.
func (p *pauser) pause(pid string, length time.Duration) {
	process := handle(pid)
	name := p.helper(pid)
	if name == "" || process.Signal(syscall.SIGSTOP) != nil {
		return
	}
	defer func() { _ = process.Signal(syscall.SIGCONT) }()
	if p.helper(pid) == "" {
		return // it has just become another program
	}
	p.mu.Lock()
	for _, test := range p.tests {
		test.pauses = append(test.pauses, fmt.Sprintf("%s %d ms", name, length.Milliseconds()))
	}
	p.mu.Unlock()
	fmt.Fprintf(os.Stderr, "pauses: %s: process %s (%s) for %d ms\n", time.Now().Format("15:04:05.000"), pid, name, length.Milliseconds())
	select {
	case <-p.end:
	case <-time.After(length):
	}
}

// handle returns a handle of a process, which never means another process.
func handle(pid string) *os.Process {
	number, _ := strconv.Atoi(pid)
	process, _ := os.FindProcess(number) // never fails on Linux
	return process
}

// helper returns the name of a process that may be stopped, or nothing.
func (p *pauser) helper(pid string) string {
	if becomesDaemon(pid) {
		return ""
	}
	line, err := os.ReadFile("/proc/" + pid + "/cmdline")
	if err != nil || len(line) == 0 {
		return ""
	}
	program, rest, _ := strings.Cut(string(line), "\x00")
	name := filepath.Base(program)
	if own, err := os.Readlink("/proc/" + pid + "/exe"); err != nil || own == p.program || judged.MatchString(name+" "+strings.ReplaceAll(rest, "\x00", " ")) {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, test := range p.tests {
		if programs, some := untouched[test.latest]; some && strings.HasPrefix(name, programs) {
			return ""
		}
	}
	return name
}

// becomesDaemon reports whether only its parent keeps a process's group from being orphaned: if the
// parent ends while the process is stopped, the kernel sends SIGHUP (setpgid(2)), as no busy machine does.
func becomesDaemon(pid string) bool {
	parent, group, session := relations(pid)
	_, parentGroup, parentSession := relations(parent)
	return session == parentSession && group != parentGroup
}

// relations returns the parent, process group and session of a process (proc(5)).
func relations(pid string) (parent, group, session string) {
	text, _ := os.ReadFile("/proc/" + pid + "/stat")
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 4 {
		return "", "", ""
	}
	return fields[1], fields[2], fields[3]
}

// descendants lists the process IDs of all below pid.
func descendants(pid string) []string {
	var all []string
	threads, _ := os.ReadDir("/proc/" + pid + "/task")
	for _, thread := range threads {
		text, _ := os.ReadFile("/proc/" + pid + "/task/" + thread.Name() + "/children")
		for _, child := range strings.Fields(string(text)) {
			all = append(append(all, child), descendants(child)...)
		}
	}
	return all
}
