// Command house prints the structure of this repository as the Go compiler sees it: its rooms
// and floors, which room imports which, and the same inside each room.
//
// A room is a program, api/v1, bpf, web, or a child of internal/; inside a room it is a package.
// An arrow is an import between two rooms by code that is no test. A floor is the longest path
// of arrows below a room, and an arrow leads up if the two rooms import each other, directly or
// not. The last lines are types that are too large (types.go). test/docs pins what this prints (testdata/house.golden), so that a change of structure is
// seen in its diff.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/weir-project/weir/"

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run(w io.Writer) error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := strings.TrimSpace(string(out))
	imports, err := readImports()
	if err != nil {
		return err
	}
	house := graph{"bpf": {}, "web": {}}
	house.join(imports, room)
	if err := house.print(w, "house", true); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(house)) {
		inside := graph{}
		inside.join(imports, func(path string) string {
			if room(path) != name {
				return ""
			}
			return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(path, "internal/"), name+"/"), name)
		})
		if len(inside) > 1 {
			if err := inside.print(w, name, false); err != nil {
				return err
			}
		}
	}
	return printLarge(w, root)
}

// room returns the room of a package, whose path is relative to the module; "" if it is none.
func room(path string) string {
	first, rest, _ := strings.Cut(path, "/")
	second, _, _ := strings.Cut(rest, "/")
	switch first {
	case "cmd", "api":
		return first + "/" + second
	case "internal":
		return second
	}
	return ""
}

// readImports returns what each package of the module imports, both relative to it, without
// tests and generators.
func readImports() (map[string][]string, error) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,GoFiles", module+"...").Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	all := map[string][]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath       string
			Imports, GoFiles []string
		}
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		path := strings.TrimPrefix(p.ImportPath, module)
		if len(p.GoFiles) == 0 || strings.HasSuffix(path, "/gen") {
			continue
		}
		all[path] = nil
		for _, i := range p.Imports {
			if to, ours := strings.CutPrefix(i, module); ours {
				all[path] = append(all[path], to)
			}
		}
	}
}

// graph is which room imports which.
type graph map[string]map[string]bool

// join adds the rooms that place gives to packages, and the arrows between them.
func (g graph) join(imports map[string][]string, place func(path string) string) {
	for from, list := range imports {
		room := place(from)
		if room == "" {
			continue
		}
		if g[room] == nil {
			g[room] = map[string]bool{}
		}
		for _, to := range list {
			if other := place(to); other != "" && other != room {
				g[room][other] = true
			}
		}
	}
}

// reaches says whether arrows lead from one room to another.
func (g graph) reaches(from, to string, seen map[string]bool) bool {
	for next := range g[from] {
		if next == to {
			return true
		}
		if !seen[next] {
			seen[next] = true
			if g.reaches(next, to, seen) {
				return true
			}
		}
	}
	return false
}

// floor returns the length of the longest path of arrows below a room that lead down.
func (g graph) floor(room string) int {
	floor := 0
	for next := range g[room] {
		if !g.reaches(next, room, map[string]bool{}) {
			floor = max(floor, g.floor(next)+1)
		}
	}
	return floor
}

func (g graph) print(w io.Writer, name string, whole bool) error {
	floors := map[string]int{}
	arrows, up := 0, 0
	for room, next := range g {
		floors[room] = g.floor(room)
		for other := range next {
			arrows++
			if g.reaches(other, room, map[string]bool{}) {
				up++
			}
		}
	}
	count := slices.Max(slices.Collect(maps.Values(floors))) + 1
	_, err := fmt.Fprintf(w, "%s: %d rooms, %d floors, %d arrows, %d up\n", name, len(g), count, arrows, up)
	if !whole || err != nil {
		return err
	}
	rooms := slices.SortedFunc(maps.Keys(g), func(a, b string) int {
		return cmp.Or(cmp.Compare(floors[b], floors[a]), cmp.Compare(a, b))
	})
	for _, room := range rooms {
		line := fmt.Sprintf("  %d  %-14s", floors[room], room)
		if len(g[room]) > 0 {
			line += "-> " + strings.Join(slices.Sorted(maps.Keys(g[room])), " ")
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}
