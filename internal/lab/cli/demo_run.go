package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/web"
)

// demonstration is one of the demos.
type demonstration interface {
	// checkPrograms says what is missing before anything is made.
	checkPrograms() error
	// setUp makes the stage. What it made by the time it fails, close removes.
	setUp(context.Context) error
	show(context.Context) error
	// close removes everything, and tries the rest where something fails.
	close() error
	say(format string, args ...any)
}

// runDemo shows a demo and removes all that it made, also when it is interrupted.
func runDemo(ctx context.Context, d demonstration) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("the demo makes a network of its own and needs root: run it with sudo")
	}
	if err := d.checkPrograms(); err != nil {
		return err
	}
	// A closed terminal and a closed pipe end the demo as Ctrl-C does, with
	// everything removed.
	endings := []os.Signal{syscall.SIGHUP, syscall.SIGPIPE}
	ctx, stop := signal.NotifyContext(ctx, endings...)
	defer stop()
	defer func() {
		if err != nil { // a program that was being started may get a Ctrl-C before this one has noticed it
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
		if ctx.Err() != nil {
			err = nil // what broke off did so because of that
		}
		endings = append(endings, os.Interrupt, syscall.SIGTERM)
		// An impatient second Ctrl-C does not end the removal, nor the programs
		// it starts, which inherit this. Nothing comes after the removal.
		signal.Ignore(endings...)
		d.say("Removing everything again.")
		err = errors.Join(err, d.close())
	}()
	if err := d.setUp(ctx); err != nil {
		return err
	}
	return d.show(ctx)
}

var errNoEngine = errors.New("dockerd is not installed: apt-get install docker.io (its service need not run)")

// checkDemoPrograms returns an error that names a missing program for networks or, with docker,
// for private engines.
func checkDemoPrograms(docker bool) error {
	needs := []struct{ program, pkg string }{
		{"ip", "iproute2"}, {"nsenter", "util-linux"}, {"sysctl", "procps"}, {"iptables", "iptables"},
	}
	if docker {
		needs = append(needs, struct{ program, pkg string }{"busybox", "busybox-static"})
		if _, err := exec.LookPath("dockerd"); err != nil {
			return errNoEngine
		}
	}
	for _, need := range needs {
		if _, err := exec.LookPath(need.program); err != nil {
			return fmt.Errorf("%s is not installed: apt-get install %s", need.program, need.pkg)
		}
	}
	return nil
}

// demoPrograms are the programs of demos with weir-edge: this one, weir and weir-edge.
type demoPrograms struct{ program, weirProgram, edgeProgram string }

// findDemoPrograms returns the paths of the programs of demos, and an error if a program, or one that it starts, is missing.
func findDemoPrograms() (found demoPrograms, err error) {
	if err := checkDemoPrograms(true); err != nil {
		return found, err
	}
	if _, err := os.Stat("/usr/sbin/haproxy"); err != nil {
		return found, errors.New("HAProxy is not installed: apt-get install haproxy")
	}
	if found.program, err = os.Executable(); err != nil {
		return found, fmt.Errorf("find this program: %w", err)
	}
	if found.weirProgram, err = cmdline.BesideThis("weir"); err != nil {
		return found, err
	}
	if found.edgeProgram = os.Getenv("WEIR_EDGE_BIN"); found.edgeProgram == "" {
		found.edgeProgram, err = cmdline.BesideThis("weir-edge")
	}
	return found, err
}

// demoStage is what demos have in common: what they say, a folder, and pages in this program, which lead to each
// other. The loopback addresses of the daemons are those of the demo's network.
type demoStage struct {
	out, log io.Writer
	dir      string
	opened   []*http.Server
	pageURL  string // of the first page; empty without one
}

func (s *demoStage) say(format string, args ...any) { fmt.Fprintf(s.log, format+"\n", args...) }

func (s *demoStage) makeDir() (err error) {
	if s.dir, err = os.MkdirTemp("", "weir-demo-"); err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	return nil
}

func (s *demoStage) removeDir() error {
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// pages returns the pages of the demo.
func (s *demoStage) pages() web.Pages { return web.PagesBeside(filepath.Join(s.dir, "socket")) }

// openPage shows a page of a kind at its usual address, or at any port if that is taken. Without a page
// the demo goes on.
func (s *demoStage) openPage(kind, usual string, page *http.Server) {
	listener, err := web.Listen(usual)
	if err != nil {
		listener, err = web.Listen("127.0.0.1:0")
	}
	if err == nil {
		listener, err = s.pages().Announce(kind, listener)
	}
	if err != nil {
		s.say("Going on without the page: %v.", err)
		return
	}
	url := "http://" + listener.Addr().String()
	s.opened, s.pageURL = append(s.opened, page), cmp.Or(s.pageURL, url)
	go func() { _ = page.Serve(listener) }()
}

func (s *demoStage) closePages() error {
	var problems []error
	for _, page := range s.opened {
		problems = append(problems, page.Close())
	}
	return errors.Join(problems...)
}
