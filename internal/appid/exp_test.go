package appid

import (
	"compress/gzip"
	"fmt"
	"os"
	"testing"

	"github.com/weir-project/weir/internal/appid/c45"
	"github.com/weir-project/weir/internal/appid/flow"
)

func load(t *testing.T, p string) []*flow.Flow {
	f, err := os.Open(p)
	if err != nil { t.Fatal(err) }
	z, _ := gzip.NewReader(f)
	fl, err := flow.ReadTable(z, Types, true)
	if err != nil { t.Fatal(err) }
	return fl
}

func TestExp(t *testing.T) {
	fl := Kept(load(t, "/work/shared/data/flows-mixed-train.csv.gz"), 30)
	L := DefaultLevels()
	run := func(name string, o StageOptions, seeds ...uint64) {
		ok, qok, n := 0, 0, 0
		nodes := 0
		for _, seed := range seeds {
			fo := Folds(fl, 10, true, seed)
			for k := range 10 {
				var tr, te []*flow.Flow
				for i, f := range fl { if fo[i] == k { te = append(te, f) } else { tr = append(tr, f) } }
				s, err := trainStage(tr, o)
				if err != nil { t.Fatal(err) }
				m := &Model{Levels: L}
				m.Stages[0] = *s
				for _, tree := range s.Trees { a, _ := tree.Size(); nodes += a }
				for _, f := range te {
					v := m.Verdict(0, f)
					ty, _ := TypeIndex(f.Type)
					n++
					if v.Type == ty { ok++ }
					if v.Level == L[ty] { qok++ }
				}
			}
		}
		fmt.Printf("%-50s acc %.4f qos %.4f nodes %d\n", name, float64(ok)/float64(n), float64(qok)/float64(n), nodes/10/len(seeds))
	}
	d := c45.Defaults()
	S := []uint64{1, 2, 3}
	O := func(fs []string, trees int, c c45.Options, e float64) StageOptions { return StageOptions{Features: fs, C45: c, Trees: trees, Seed: 1, GroupExponent: e} }
	c := func(conf, leaf float64) c45.Options { x := d; x.Confidence = conf; x.MinLeaf = leaf; return x }
	_ = c
	run("dst", O([]string{"dst"}, 1, d, 0), S...)
	run("ports", O([]string{"ports"}, 1, d, 0), S...)
	run("paper", O([]string{"paper"}, 1, d, 0), S...)
	run("service", O([]string{"service"}, 1, d, 0), S...)
	run("service,proto,ranges", O([]string{"service","proto","dst_range","src_range"}, 1, d, 0), S...)
	run("svconly", O([]string{"service"}, 1, c(.25,10), 0), S...)
	run("service e.5", O([]string{"service"}, 1, d, .5), S...)
	run("service+dst", O([]string{"service","dst"}, 1, d, 0), S...)
	run("service+syn", O([]string{"service","syn"}, 1, d, 0), S...)
	run("service+dst+syn", O([]string{"service","dst","syn"}, 1, d, 0), S...)
	run("service+dst+syn 5", O([]string{"service","dst","syn"}, 5, d, .3), S...)
	run("service+dst 5", O([]string{"service","dst"}, 5, d, .3), S...)
	run("sizes", O([]string{"sizes"}, 1, d, 0), S...)
	run("sizes c.1 l5", O([]string{"sizes"}, 1, c(.1,5), 0), S...)
	run("sizes c.05 l10", O([]string{"sizes"}, 1, c(.05,10), 0), S...)
	run("sizes e.3", O([]string{"sizes"}, 1, d, .3), S...)
	run("sizes 5", O([]string{"sizes"}, 5, d, .3), S...)
	run("sizes+dst 5", O([]string{"sizes","dst_port"}, 5, d, .3), S...)
	run("sizes 25", O([]string{"sizes"}, 25, d, .3), 1)
}
