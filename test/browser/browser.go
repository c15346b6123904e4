// Package browser starts Chromium for tests of pages.
package browser

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// settles bounds how long processes of a browser that has ended may go on to write.
const settles = 10 * time.Second

// Start starts a browser with one empty page, which ends with the test, or when the
// time is over. Where there is none, the test is skipped.
func Start(t *testing.T, most time.Duration) context.Context {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("chromium is not installed (scripts/install-deps.sh test)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), most)
	t.Cleanup(cancel)
	dir := profile(t)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Env("TMPDIR="+dir), // where it makes a folder for its socket, and leaves it
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until the browser has ended, but not its children
		cancel()
	})
	return ctx
}

// profile is a folder for what a browser keeps. Children that outlive the browser for a
// moment still write to it while it is removed, or make it anew.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for began := time.Now(); ; {
			err := os.RemoveAll(dir)
			time.Sleep(50 * time.Millisecond)
			if _, there := os.Stat(dir); err == nil && errors.Is(there, fs.ErrNotExist) {
				return
			}
			if time.Since(began) > settles {
				t.Errorf("%s cannot be removed: %v", dir, err)
				return
			}
		}
	})
	return dir
}
