package openflow

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/test/must"
)

// The golden packets are those of os-ken, a controller in Python: captured from
// switches, written by Open vSwitch, or made for a message that none of them
// sent. Beside each is what os-ken reads out of it. They are fetched, not kept
// here.
const (
	osKen       = "os-ken==4.2.2"
	osKenWheel  = "os_ken-4.2.2-py3-none-any.whl"
	osKenSHA256 = "d61b016b5e753a64f3652014e080ce9e216540a620666fc22835f880dbf63d3b"
	packetDir   = "os_ken/tests/packet_data/of13/"
	jsonDir     = "os_ken/tests/unit/ofproto/json/of13/"
)

// openOSKen opens the wheel, from the cache or fetched by pip.
func openOSKen(t *testing.T) *zip.Reader {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skipf("no directory to keep %s in: %v", osKen, err)
	}
	dir := filepath.Join(cache, "weir-openflow")
	wheel, err := os.ReadFile(filepath.Join(dir, osKenWheel))
	if err != nil {
		fetchOSKen(t, dir)
		if wheel, err = os.ReadFile(filepath.Join(dir, osKenWheel)); err != nil {
			t.Skipf("pip fetched no %s: %v", osKenWheel, err)
		}
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(wheel)); sum != osKenSHA256 {
		t.Fatalf("%s has the SHA-256 %s, want %s: remove it", filepath.Join(dir, osKenWheel), sum, osKenSHA256)
	}
	z, err := zip.NewReader(bytes.NewReader(wheel), int64(len(wheel)))
	must.Succeed(t, err)
	return z
}

func fetchOSKen(t *testing.T, dir string) {
	pip, err := exec.LookPath("pip3")
	if err != nil {
		t.Skipf("no pip to fetch the golden packets of %s with (scripts/install-deps.sh test)", osKen)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, pip, "download", "--quiet", "--disable-pip-version-check", "--retries", "1",
		"--no-deps", "--only-binary", ":all:", "--dest", dir, osKen).CombinedOutput()
	if err != nil {
		t.Skipf("cannot fetch the golden packets of %s: %v: %s", osKen, err, lastLine(out))
	}
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// goldenPacket is a packet and what os-ken reads out of it.
type goldenPacket struct {
	name   string
	packet []byte
	json   []byte
}

func readGolden(t *testing.T) []goldenPacket {
	z := openOSKen(t)
	files := map[string][]byte{}
	var names []string
	for _, f := range z.File {
		dir, base := path.Split(f.Name)
		if base == "" || dir != packetDir && dir != jsonDir {
			continue
		}
		r, err := f.Open()
		must.Succeed(t, err)
		if files[f.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if dir == packetDir {
			names = append(names, base)
		}
	}
	slices.Sort(names)
	var golden []goldenPacket
	for _, name := range names {
		golden = append(golden, goldenPacket{name, files[packetDir+name], files[jsonDir+name+".json"]})
	}
	return golden
}

// goldenRefused are the packets that are no message of OpenFlow 1.3, and why.
var goldenRefused = map[string]string{
	"libofproto-OFP13-flow_mod.truncated64": "unexpected EOF",
}

// TestGolden reads all golden packets of OpenFlow 1.3, compares every field with
// what os-ken read, and writes them again byte for byte.
func TestGolden(t *testing.T) {
	golden := readGolden(t)
	if len(golden) != 105 {
		t.Fatalf("%d golden packets, want 105", len(golden))
	}
	decoded, refused, fields, opaque := 0, 0, 0, 0
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			m, err := Parse(g.packet)
			if want, bad := goldenRefused[g.name]; bad {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Fatalf("error %v, want %s", err, want)
				}
				t.Logf("refused: %v", err)
				refused++
				return
			}
			must.Succeed(t, err)
			decoded++
			again, err := m.MarshalBinary()
			must.Succeed(t, err)
			if !bytes.Equal(again, g.packet) {
				t.Errorf("written again:\n%x, want\n%x", again, g.packet)
			}
			c := comparison{t: t}
			var theirs any
			decodeJSON(t, g.json, &theirs)
			var ours map[string]any
			decodeJSON(t, Format(m, true), &ours)
			c.compare("", unwrap(theirs), ours)
			if c.fields == 0 && len(unwrap(theirs).(map[string]any)) > 0 {
				t.Error("nothing was compared")
			}
			fields += c.fields
			opaque += c.opaque
		})
	}
	t.Logf("%d golden packets: %d decoded and written again, %d refused; %d fields compared, %d are others' and opaque",
		len(golden), decoded, refused, fields, opaque)
}

func decodeJSON(t *testing.T, text []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// unwrap takes {"OFPSomething": {...}} to {...}, down to the leaves.
func unwrap(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = unwrap(v[i])
		}
	case map[string]any:
		for name, inner := range v {
			for _, prefix := range []string{"OFP", "OXM", "NX", "ONF"} {
				if len(v) == 1 && strings.HasPrefix(name, prefix) {
					return unwrap(inner)
				}
			}
			v[name] = unwrap(inner)
		}
	}
	return v
}

// comparison compares what os-ken read with what Format writes.
type comparison struct {
	t              *testing.T
	fields, opaque int
}

func (c *comparison) compare(at string, theirs, ours any) {
	switch theirs := theirs.(type) {
	case map[string]any:
		if list, ok := theirs["body"].([]any); ok && len(list) == 1 {
			if _, ok := ours.(map[string]any)["body"].(map[string]any); ok {
				theirs["body"] = list[0] // meter features
			}
		}
		object, ok := ours.(map[string]any)
		if !ok {
			c.t.Errorf("%s: %v, want %v", at, ours, theirs)
			return
		}
		c.object(at, theirs, object)
	case []any:
		list, ok := ours.([]any)
		if !ok || len(list) != len(theirs) {
			c.t.Errorf("%s: %v, want %v", at, ours, theirs)
			return
		}
		for i := range list {
			c.compare(fmt.Sprintf("%s[%d]", at, i), theirs[i], list[i])
		}
	default:
		c.fields++
		if fmt.Sprint(theirs) != fmt.Sprint(ours) {
			c.t.Errorf("%s: %v, want %v", at, ours, theirs)
		}
	}
}

func (c *comparison) object(at string, theirs, ours map[string]any) {
	if _, ok := ours["class"]; ok {
		c.opaqueField(at, theirs, ours)
		return
	}
	if subtype, ok := theirs["subtype"]; ok {
		c.opaqueAction(at, subtype, theirs, ours)
		return
	}
	for key, want := range theirs {
		name := at + "." + key
		switch {
		case key == "len" || key == "length" || key == "actions_len":
			continue // writing again compares them
		case want == nil:
			if got, ok := ours[key]; ok {
				c.t.Errorf("%s: %v, want none", name, got)
			}
			continue
		}
		if _, isName := want.(string); isName && key == "type" {
			key = "field" // of table features
		}
		got, ok := lookUp(ours, at == "", key)
		if !ok {
			c.t.Errorf("%s: nothing, want %v", name, want)
			continue
		}
		if key == "body" && ours["multipart_type"] == json.Number("65535") && isList(want) ||
			key == "data" && isObject(want) {
			c.opaque++ // taken apart by os-ken: flow monitors of ONF, the packet in a message
			continue
		}
		c.compare(name, want, translate(c.t, want, key, got))
	}
}

// goldenNames are the fields that os-ken calls otherwise.
var goldenNames = map[string][]string{
	"type":      {"multipart_type", "error_type", "group_type"},
	"table_ids": {"next_table_ids"},
	"versions":  {"bitmaps"},
}

// lookUp finds the field that os-ken calls key.
func lookUp(ours map[string]any, top bool, key string) (any, bool) {
	for _, name := range goldenNames[key] {
		if v, ok := ours[name]; ok {
			return v, true
		}
	}
	if v, ok := ours[key]; ok {
		return v, true
	}
	body, ok := ours["body"].(map[string]any)
	if !ok || !top {
		return nil, false
	}
	v, ok := body[key]
	return v, ok
}

// translate writes a value as os-ken does.
func translate(t *testing.T, want any, key string, v any) any {
	list := []any{}
	switch text, isText := v.(string); {
	case key == "versions":
		for word, bits := range v.([]any) {
			for bit := range 32 {
				if n, err := bits.(json.Number).Int64(); err != nil {
					t.Fatal(err)
				} else if n&(1<<bit) != 0 {
					list = append(list, json.Number(fmt.Sprint(32*word+bit)))
				}
			}
		}
		return list
	case isList(want) && isText: // of experimenters
		b, err := base64.StdEncoding.DecodeString(text)
		must.Succeed(t, err)
		size := 1 // of a queue; experimenters' of a table are of 4 bytes
		if len(b) == 4*len(want.([]any)) {
			size = 4
		}
		for ; len(b) >= size && len(b) > 0; b = b[size:] {
			list = append(list, json.Number(fmt.Sprint(bigEndian(b[:size]))))
		}
		return list
	}
	return v
}

// opaqueField is a match field of another class than OFPXMC_OPENFLOW_BASIC: its
// name is not known here.
func (c *comparison) opaqueField(at string, theirs, ours map[string]any) {
	c.opaque++
	for _, key := range []string{"value", "mask"} {
		want, isNumber := theirs[key].(json.Number)
		if !isNumber {
			continue
		}
		b, err := base64.StdEncoding.DecodeString(fmt.Sprint(ours[key]))
		if err != nil {
			c.t.Errorf("%s.%s: %v", at, key, err)
		}
		if fmt.Sprint(ours["experimenter"]) == "1330529792" && len(b) > 2 {
			b = b[2:] // the number of the field, in a draft of ONF's
		}
		c.compare(at+"."+key, want, json.Number(fmt.Sprint(bigEndian(b))))
	}
}

// opaqueAction is one of Nicira's.
func (c *comparison) opaqueAction(at string, subtype any, theirs, ours map[string]any) {
	c.opaque++
	c.compare(at+".type", theirs["type"], ours["type"])
	c.compare(at+".experimenter", theirs["experimenter"], ours["experimenter"])
	data, err := base64.StdEncoding.DecodeString(fmt.Sprint(ours["data"]))
	if err != nil || len(data) < 2 {
		c.t.Fatalf("%s.data: %v: %v", at, ours["data"], err)
	}
	c.compare(at+".subtype", subtype, json.Number(fmt.Sprint(bigEndian(data[:2]))))
}

func isList(v any) bool {
	_, ok := v.([]any)
	return ok
}

func isObject(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}
