// Package docs compares the pages with the commands, messages, labels and files that they name.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	agentcli "github.com/weir-project/weir/internal/agent/cli"
	edgecli "github.com/weir-project/weir/internal/edge/cli"
	"github.com/weir-project/weir/internal/k8s"
	labcli "github.com/weir-project/weir/internal/lab/cli"
	sdncli "github.com/weir-project/weir/internal/sdn/cli"

	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/test/golden"
)

const treeRoot = "../.."

// TestDocsCLI compares docs/cli.md with the help of the commands.
// Renew it with: go test ./test/docs -run TestDocs -update
func TestDocsCLI(t *testing.T) {
	golden.Compare(t, filepath.Join(treeRoot, "docs", "cli.md"), cliReference())
}

// cliReference is the page of all commands.
func cliReference() string {
	var b strings.Builder
	b.WriteString(`# Commands

<!-- Generated from the commands: go test ./test/docs -run TestDocs -update -->

` + "`weir`" + ` is the agent and everything that talks to it. It runs ` + "`weir-lab`" + ` and ` + "`weir-sdn`" + `,
installed beside it, for the commands that need them (` + "`weir bench`" + ` is ` + "`weir-lab bench`" + `). Data goes to
standard output, everything else to standard error. Exit codes: 0 done, 1 failed,
2 called wrongly, 78 ` + "`weir agent`" + ` without a configuration. ` + "`weir completion --help`" + ` tells
how to have commands and the names of running containers completed by your shell.
[weir-k8s](#weir-k8s) is a program of its own.

`)
	root := agentcli.NewRoot()
	var commands []*cobra.Command
	for _, c := range root.Commands() {
		if !c.Hidden && c.Name() != "help" && c.Name() != "completion" {
			commands = append(commands, implementation(c))
			fmt.Fprintf(&b, "- [weir %s](#weir-%s): %s\n", c.Name(), c.Name(), lowerFirst(c.Short))
		}
	}
	b.WriteString("\n## Options of all commands\n\n")
	writeFlags(&b, root.PersistentFlags())
	for _, c := range commands {
		writeCommand(&b, c)
	}
	writeCommand(&b, k8s.NewRoot())
	return b.String()
}

// implementation returns the command of the sibling program that runs c, or c itself.
func implementation(c *cobra.Command) *cobra.Command {
	if !c.DisableFlagParsing {
		return c
	}
	if c.Name() == "sdn" {
		return sdncli.NewRoot("weir sdn")
	}
	found, _, err := labcli.NewRoot("weir").Find([]string{c.Name()})
	if err != nil {
		panic(err)
	}
	return found
}

// TestSiblings: what `weir --help` says of a command that another program runs is what that
// program says, and all of weir-lab's commands are there.
func TestSiblings(t *testing.T) {
	stubs := map[string]*cobra.Command{}
	for _, c := range agentcli.NewRoot().Commands() {
		if !c.DisableFlagParsing {
			continue
		}
		stubs[c.Name()] = c
		if real := implementation(c); c.Short != real.Short || c.Hidden != real.Hidden {
			t.Errorf("weir %s: %q (hidden %t), its program says %q (hidden %t)", c.Name(), c.Short, c.Hidden, real.Short, real.Hidden)
		}
	}
	for _, c := range labcli.NewRoot("weir").Commands() {
		if stubs[c.Name()] == nil && c.Name() != "help" && c.Name() != "completion" {
			t.Errorf("weir does not run weir-lab %s", c.Name())
		}
	}
}

// TestGroups: the help of a program with more than ten commands lists each below a title.
func TestGroups(t *testing.T) {
	for _, root := range []*cobra.Command{agentcli.NewRoot(), edgecli.NewRoot()} {
		for _, c := range root.Commands() {
			if c.IsAvailableCommand() && c.GroupID == "" {
				t.Errorf("%s is in no group", c.CommandPath())
			}
		}
		if len(root.Groups()) < 3 || len(root.Commands()) <= 10 {
			t.Errorf("%s: %d groups of %d commands", root.Name(), len(root.Groups()), len(root.Commands()))
		}
	}
}

func lowerFirst(text string) string { return strings.ToLower(text[:1]) + text[1:] }

func writeCommand(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n    %s\n\n", c.CommandPath(), c.UseLine())
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	b.WriteString(prose(text) + "\n")
	if c.Example != "" {
		b.WriteString("\nExamples:\n\n")
		for line := range strings.Lines(c.Example) {
			b.WriteString("    " + strings.TrimSpace(line) + "\n")
		}
	}
	if c.LocalFlags().HasAvailableFlags() {
		b.WriteString("\n")
		writeFlags(b, c.LocalFlags())
	}
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			writeCommand(b, sub)
		}
	}
}

// prose keeps paragraphs and makes indented lines a block as they are.
func prose(text string) string {
	var lines []string
	indented := false
	for line := range strings.SplitSeq(text, "\n") {
		starts := strings.HasPrefix(line, "  ")
		if starts != indented && line != "" {
			if len(lines) > 0 && lines[len(lines)-1] != "" {
				lines = append(lines, "")
			}
			indented = starts
		}
		if starts {
			line = "  " + line
		} else {
			line = strings.ReplaceAll(line, "<", "&lt;")
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func writeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| option | default | meaning |\n|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value := ""
		switch f.DefValue {
		case "", "false", "0s", "[]":
		default:
			value = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
	})
}

// pages are the texts for users and contributors, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	var paths []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(treeRoot, pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, found...)
	}
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	return texts
}

// TestDocsLinks: links lead to files of the tree, and to headings.
func TestDocsLinks(t *testing.T) {
	texts := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|src="([^"]+)"`)
	for path, text := range texts {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target := match[1] + match[2]
			if strings.Contains(target, "://") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			there := path
			if file != "" {
				there = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(there); err != nil {
				t.Errorf("%s links to %s: %v", path, target, err)
			} else if anchor != "" && !anchors(texts[there])[anchor] {
				t.Errorf("%s links to %s: there is no such heading", path, target)
			}
		}
	}
}

// TestDocsTitles: a page begins with its title.
func TestDocsTitles(t *testing.T) {
	for path, text := range pages(t) {
		if !strings.HasPrefix(text, "# ") {
			t.Errorf("%s does not begin with its title", path)
		}
	}
}

// TestDocsRooms: the map of the tree names every program and every folder of internal.
func TestDocsRooms(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(treeRoot, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	for parent, prefix := range map[string]string{"cmd": "cmd/", "internal": "(internal/)?"} {
		folders, err := os.ReadDir(filepath.Join(treeRoot, parent))
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range folders {
			if !regexp.MustCompile("`" + prefix + folder.Name() + "[`/]").Match(text) {
				t.Errorf("docs/architecture.md does not say what %s/%s is for", parent, folder.Name())
			}
		}
	}
}

// TestDocsNamedTests: tests, benchmarks and fuzz targets that pages, scripts and comments name exist.
// A name after -run or -bench may be the beginning of several.
func TestDocsNamedTests(t *testing.T) {
	function := regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Z]\w*)\(`)
	mention := regexp.MustCompile(`(-run \S*|-bench \S*)?\b((?:Test|Benchmark|Fuzz)[A-Z]\w*)`)
	comment := regexp.MustCompile(`(?m)^(?:.*\s)?//.*$`)
	functions, mentions := "\n", map[string]string{}
	for _, folder := range []string{".", "api", "bpf", "cmd", "docs", "internal", "packaging", "scripts", "test", "tools"} {
		err := filepath.WalkDir(filepath.Join(treeRoot, folder), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && folder == "." && path != treeRoot {
				return fs.SkipDir
			}
			kind := filepath.Ext(path)
			if err != nil || entry.IsDir() || !slices.Contains([]string{"", ".c", ".go", ".h", ".md", ".sh", ".yml"}, kind) {
				return err
			}
			text, err := os.ReadFile(path)
			said := string(text)
			if kind == ".go" {
				for _, match := range function.FindAllStringSubmatch(said, -1) {
					functions += match[1] + "\n"
				}
				said = strings.Join(comment.FindAllString(said, -1), "\n")
			}
			for _, match := range mention.FindAllStringSubmatch(said, -1) {
				if match[1] == "" {
					match[2] += "\n"
				}
				mentions[match[2]] = path
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range mentions {
		if !strings.Contains(functions, "\n"+name) {
			t.Errorf("%s names %s, which does not exist", path, strings.TrimSpace(name))
		}
	}
	if len(mentions) < 100 {
		t.Errorf("only %d names of tests found", len(mentions))
	}
}

// anchors are the names that GitHub gives to headings.
func anchors(text string) map[string]bool {
	list := map[string]bool{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			name := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
			list[strings.ReplaceAll(name, " ", "-")] = true
		}
	}
	return list
}

// TestDocsMessages: the headings of docs/troubleshooting.md are messages of the code, with … for
// the parts that vary.
func TestDocsMessages(t *testing.T) {
	code := sourceText(t)
	text, err := os.ReadFile(filepath.Join(treeRoot, "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		message, ok := strings.CutPrefix(strings.TrimSpace(line), "### `")
		if !ok {
			continue
		}
		found++
		for part := range strings.SplitSeq(strings.TrimSuffix(message, "`"), "…") {
			if part = strings.TrimSpace(part); part != "" && !strings.Contains(code, part) {
				t.Errorf("no message in the code has %q (of %q)", part, message)
			}
		}
	}
	if found == 0 {
		t.Error("no message found in docs/troubleshooting.md")
	}
}

// sourceText is all Go code that is no test.
func sourceText(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, folder := range []string{"internal", "api"} {
		err := filepath.WalkDir(filepath.Join(treeRoot, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			b.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return strings.ReplaceAll(b.String(), `\"`, `"`)
}

// TestDocsLabels: the tables of labels have the names that the agent reads.
func TestDocsLabels(t *testing.T) {
	for _, page := range []string{"README.md", "docs/user-guide.md"} {
		text, err := os.ReadFile(filepath.Join(treeRoot, page))
		if err != nil {
			t.Fatal(err)
		}
		rows := regexp.MustCompile("(?m)^\\| (`weir\\.[a-z.`, -]+`) \\|").FindAllStringSubmatch(string(text), -1)
		var names []string
		for _, row := range rows { // of one label, or of several
			for name := range strings.SplitSeq(row[1], ", ") {
				names = append(names, strings.TrimPrefix(strings.Trim(name, "`"), policy.Prefix))
			}
		}
		if got, want := strings.Join(names, " "), strings.Join(policy.Names(), " "); got != want {
			t.Errorf("%s has rows for %q, the labels are %q", page, got, want)
		}
	}
}
