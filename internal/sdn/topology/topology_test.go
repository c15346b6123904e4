package topology

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// network is a random map, with its links as a list.
func network(rt *rapid.T) (*Graph, int, map[Port]Port) {
	g, n, cables := New(), rapid.IntRange(2, 8).Draw(rt, "switches"), map[Port]Port{}
	for i := range rapid.IntRange(0, 14).Draw(rt, "links") {
		a := Port{DPID(rapid.IntRange(1, n).Draw(rt, "a")), uint32(2*i + 1)}
		b := Port{DPID(rapid.IntRange(1, n).Draw(rt, "b")), uint32(2*i + 2)}
		if g.Heard(a, b) {
			rt.Fatal("one direction made a link")
		}
		if !g.Heard(b, a) {
			rt.Fatal("both directions made no link")
		}
		cables[a], cables[b] = b, a
	}
	return g, n, cables
}

// TestPath: paths are whole, lead where they should, and none is shorter.
func TestPath(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g, n, cables := network(rt)
		far := map[[2]int]int{} // by Floyd and Warshall
		for i := 1; i <= n; i++ {
			for j := 1; j <= n; j++ {
				if i != j {
					far[[2]int{i, j}] = 99
				}
			}
		}
		for a, b := range cables {
			if a.Switch != b.Switch {
				far[[2]int{int(a.Switch), int(b.Switch)}] = 1
			}
		}
		for k := 1; k <= n; k++ {
			for i := 1; i <= n; i++ {
				for j := 1; j <= n; j++ {
					far[[2]int{i, j}] = min(far[[2]int{i, j}], far[[2]int{i, k}]+far[[2]int{k, j}])
				}
			}
		}
		from := Port{DPID(rapid.IntRange(1, n).Draw(rt, "from")), 100}
		to := Port{DPID(rapid.IntRange(1, n).Draw(rt, "to")), 101}
		path := g.Path(from, to, rapid.Uint32().Draw(rt, "hash"))
		want := far[[2]int{int(from.Switch), int(to.Switch)}]
		if (path == nil) != (want >= 99) {
			rt.Fatalf("path %v, distance %d", path, want)
		}
		if path == nil {
			return
		}
		if len(path) != want+1 || path[0].In != 100 || path[len(path)-1] != (Hop{to.Switch, path[len(path)-1].In, 101}) {
			rt.Fatalf("%v from %v to %v, distance %d", path, from, to, want)
		}
		for i := range path[:len(path)-1] {
			if cables[Port{path[i].Switch, path[i].Out}] != (Port{path[i+1].Switch, path[i+1].In}) {
				rt.Fatalf("no cable between %v and %v", path[i], path[i+1])
			}
		}
	})
}

// TestTree: the tree joins what links join, with no circle.
func TestTree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g, n, cables := network(rt)
		tree := g.Tree()
		edges := 0
		group := make([]int, n+1)
		for i := range group {
			group[i] = i
		}
		root := func(i int) int {
			for group[i] != i {
				i = group[i]
			}
			return i
		}
		for a, b := range cables {
			if tree[a] != tree[b] {
				rt.Fatalf("one end of %v and %v alone", a, b)
			}
			if tree[a] && a.Compare(b) < 0 {
				edges++
				x, y := root(int(a.Switch)), root(int(b.Switch))
				if x == y {
					rt.Fatalf("a circle through %v and %v", a, b)
				}
				group[x] = y
			}
		}
		for a, b := range cables {
			if root(int(a.Switch)) != root(int(b.Switch)) {
				rt.Fatalf("%v and %v are not joined", a, b)
			}
		}
		if len(tree) != 2*edges || len(g.Links())*2 != len(cables) {
			rt.Fatalf("%d ports in the tree of %d links; %d links of %d", len(tree), edges, len(g.Links()), len(cables)/2)
		}
	})
}

func TestForget(t *testing.T) {
	g := New()
	a, b, c := Port{1, 1}, Port{2, 1}, Port{3, 1}
	g.Heard(a, b)
	if _, ok := g.Peer(a); ok || g.Forget(a) {
		t.Error("half a link counted")
	}
	g.Heard(a, b)
	g.Heard(b, a)
	if peer, ok := g.Peer(b); !ok || peer != a {
		t.Error("no link")
	}
	if !g.Heard(a, c) { // another cable
		t.Error("the old link stayed")
	}
	if g.Heard(a, c) {
		t.Error("the same again is news")
	}
	if g.Path(a, Port{2, 9}, 0) != nil {
		t.Error("a path without a link")
	}
	g.Heard(c, a)
	if !g.Forget(c) || len(g.Links()) != 0 {
		t.Error("the link stayed")
	}
	if a.String() != "0000000000000001 port 1" {
		t.Error(a.String())
	}
}

// TestHashSpreads: equal paths are all used.
func TestHashSpreads(t *testing.T) {
	g := New()
	for i := range uint32(4) {
		for _, pair := range [][2]Port{{{1, i}, {DPID(10 + i), 1}}, {{DPID(10 + i), 2}, {2, i}}} {
			g.Heard(pair[0], pair[1])
			g.Heard(pair[1], pair[0])
		}
	}
	used := map[DPID]int{}
	for hash := range uint32(1000) {
		used[g.Path(Port{1, 100}, Port{2, 100}, hash*2654435761)[1].Switch]++
	}
	if len(used) != 4 {
		t.Errorf("%v", used)
	}
	for d, n := range used {
		if n < 150 {
			t.Errorf("%v has %d of 1000 flows", d, n)
		}
	}
}

func TestLLDP(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := Signer{Key: [32]byte{1}}
		p := Port{DPID(rapid.Uint64().Draw(rt, "dpid")), rapid.Uint32().Draw(rt, "port")}
		round := rapid.Uint64Range(1, 1<<60).Draw(rt, "round")
		b := s.Frame(p, [6]byte{2}, round)
		for _, now := range []uint64{round, round + 1} {
			if got, err := s.Open(b, now); err != nil || got != p {
				rt.Fatalf("%v, %v", got, err)
			}
		}
		for _, now := range []uint64{round - 1, round + 2} {
			if _, err := s.Open(b, now); !errors.Is(err, ErrStale) {
				rt.Fatalf("round %d in %d: %v", round, now, err)
			}
		}
		// Any bit that says something may not be changed; the addresses say nothing.
		i := rapid.IntRange(14, len(b)-3).Draw(rt, "byte")
		b[i] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		if got, err := s.Open(b, round); err == nil && got != p {
			rt.Fatalf("byte %d changed: %v", i, got)
		}
		if _, err := s.Open(rapid.SliceOf(rapid.Byte()).Draw(rt, "noise"), round); err == nil {
			rt.Fatal("noise was taken for LLDP")
		}
	})
}

// TestWidest: of the shortest paths none has a wider narrowest port than the chosen one.
func TestWidest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g, n, _ := network(rt)
		widths := map[Port]uint64{}
		width := func(p Port) uint64 {
			if _, drawn := widths[p]; !drawn {
				widths[p] = rapid.Uint64Range(0, 5).Draw(rt, "width")
			}
			return widths[p]
		}
		from := Port{DPID(rapid.IntRange(1, n).Draw(rt, "from")), 100}
		to := Port{DPID(rapid.IntRange(1, n).Draw(rt, "to")), 101}
		narrowest := func(path []Hop) uint64 {
			w := ^uint64(0)
			for _, hop := range path {
				w = min(w, width(Port{hop.Switch, hop.Out}))
			}
			return w
		}
		path := g.Widest(from, to, rapid.Uint32().Draw(rt, "hash"), width)
		if len(path) != len(g.Path(from, to, 0)) {
			rt.Fatalf("%v is none of the shortest paths", path)
		}
		var all func(at Port, way []Hop)
		all = func(at Port, way []Hop) {
			if at.Switch == to.Switch {
				if whole := append(slices.Clone(way), Hop{at.Switch, at.Number, to.Number}); narrowest(whole) > narrowest(path) {
					rt.Fatalf("%v is wider than %v", whole, path)
				}
				return
			}
			for _, w := range g.ways[at.Switch] {
				if len(way) < len(path)-1 && g.distances(to.Switch)[w.to.Switch] == len(path)-2-len(way) {
					all(w.to, append(slices.Clone(way), Hop{at.Switch, at.Number, w.out}))
				}
			}
		}
		if path != nil {
			all(from, nil)
		}
	})
}
