package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

const lock = "../../web/package-lock.json"

// TestBill: every module in a real program is in its bill, once, and nothing else but the
// standard library and what was named.
func TestBill(t *testing.T) {
	program, err := os.Executable() // this test, which has modules in it
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	args := []string{"-name", "tried", "-version", "1.2.3", "-npm", lock, "-bundled", "preact,uplot", program}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(args, out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same program makes different bills")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&first, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" ||
		bom.Metadata.Component.Name != "tried" || bom.Metadata.Component.Version != "1.2.3" {
		t.Errorf("it is of %+v", bom.Metadata)
	}
	parts := map[string]cdx.Component{}
	for _, part := range *bom.Components {
		if _, twice := parts[part.PackageURL]; twice {
			t.Errorf("%s is in it twice", part.PackageURL)
		}
		parts[part.PackageURL] = part
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range info.Deps {
		if _, there := parts["pkg:golang/"+module.Path+"@"+module.Version]; !there {
			t.Errorf("%s %s is missing", module.Path, module.Version)
		}
	}
	preact := 0
	for url, part := range parts {
		if strings.HasPrefix(url, "pkg:npm/preact@") && part.Hashes != nil {
			preact++
		}
	}
	if len(parts) != len(info.Deps)+3 || preact != 1 { // the standard library, preact and uplot
		t.Errorf("%d parts of %d modules, %d of them preact", len(parts), len(info.Deps), preact)
	}
	if depends := *bom.Dependencies; len(depends) != 1 || len(*depends[0].Dependencies) != len(parts) {
		t.Errorf("depends on %+v", depends)
	}
}

func TestNoBill(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ says, args string }{
		{"usage", ""},
		{"usage", "-name weir"},
		{"nowhere", "-name weir -version 1 /nowhere"},
		{empty, "-name weir -version 1 " + empty},
		{`"left-pad"`, "-name weir -version 1 -npm " + lock + " -bundled left-pad " + os.Args[0]},
	} {
		var out bytes.Buffer
		if err := run(strings.Fields(test.args), &out); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("sbom %s: %v", test.args, err)
		}
		if out.Len() > 0 {
			t.Errorf("sbom %s prints %.80s", test.args, &out)
		}
	}
}
