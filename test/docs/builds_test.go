package docs

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// TestBuildsAreCommits: a figure's build, such as `0123abcd`, is a commit of this history. A commit
// that a rebase has replaced is in no clone, so the figure could not be repeated.
func TestBuildsAreCommits(t *testing.T) {
	if _, err := os.Stat(filepath.Join(treeRoot, ".git")); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this tree has no history")
	}
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", treeRoot}, args...)...).Output()
		must.Succeed(t, err)
		return string(out)
	}
	if strings.TrimSpace(git("rev-parse", "--is-shallow-repository")) != "false" {
		t.Skip("this clone has a part of the history only")
	}
	commits, builds := "\n"+git("rev-list", "HEAD"), 0
	build := regexp.MustCompile("`([0-9a-f]{7,40})`")
	for path, text := range pages(t) {
		for _, match := range build.FindAllStringSubmatch(text, -1) {
			if builds++; !strings.Contains(commits, "\n"+match[1]) {
				t.Errorf("%s: the build %s is no commit", path, match[1])
			}
		}
	}
	if builds == 0 {
		t.Error("no page names a build")
	}
}
