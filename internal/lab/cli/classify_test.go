package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// runClassify runs a command line of weir classify.
func runClassify(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	code, stdout, stderr = run(append([]string{"classify"}, args...)...)
	return stdout, stderr, code
}

// flowTable writes a table of flows: web, mail, names and two kinds that only
// sizes tell apart.
func flowTable(t *testing.T, seed uint64) string {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.WriteString("group,proto,src_port,dst_port,syn,seq_len1,seq_iat1_us,seq_len2,seq_iat2_us,bytes_c2s,bytes_s2c,app_type,cap_rank\n")
	kinds := []string{"6,%d,443,1,517,9,-1400,9,600,90000,WEB", "6,%d,25,1,-40,9,30,9,900,300,EMAIL",
		"17,%d,53,0,40,9,-100,9,40,100,SERVICES", "17,%d,45678,0,172,9,172,9,9000,9000,VOIP", "17,%d,45678,0,1300,9,-20,9,90000,900,P2P"}
	for group := range 60 {
		for rank := range 3 {
			fmt.Fprintf(&b, "g%d,"+kinds[random.IntN(len(kinds))]+",%d\n", group, 40000+random.IntN(9000), rank+1)
		}
	}
	path := filepath.Join(t.TempDir(), "flows.csv.gz")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(b.String())); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, zipped.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

type printedScores struct {
	Flows       int
	Accuracy    float64
	QoSAccuracy float64 `json:"qos_accuracy"`
	MacroF1     float64 `json:"macro_f1"`
	Classes     map[string]struct {
		Recall, Precision float64
		Count             int
	}
	SecondStage struct {
		Accuracy    float64
		QoSAccuracy float64 `json:"qos_accuracy"`
	} `json:"second_stage"`
}

func evaluate(t *testing.T, args ...string) printedScores {
	t.Helper()
	out, errs, code := runClassify(t, append([]string{"eval", "-o", "json"}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	var s printedScores
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestClassifyTrainAndEval(t *testing.T) {
	train, test := flowTable(t, 1), flowTable(t, 2)
	model := filepath.Join(t.TempDir(), "model.json")
	out, errs, code := runClassify(t, "train", train, "--out", model, "--data", "made up", "--late-trees", "3")
	if code != 0 || !strings.Contains(out, "180 flows of 60 groups") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	own := evaluate(t, test, "--tree", model)
	if own.Flows != 180 || own.SecondStage.QoSAccuracy < 0.99 || own.QoSAccuracy < 0.75 || own.Classes["EMAIL"].Recall != 1 || own.Classes["EMAIL"].Count == 0 {
		t.Errorf("%+v", own)
	}
	if shipped := evaluate(t, test); shipped.Classes["WEB"].Recall < 0.99 || shipped.MacroF1 <= 0 || shipped.MacroF1 > 1 {
		t.Errorf("the shipped classifier: %+v", shipped)
	}
	if s := evaluate(t, test, "--max-rank", "1"); s.Flows != 60 {
		t.Errorf("%d flows of rank 1", s.Flows)
	}
	if s := evaluate(t, test, "--folds", "4"); s.Flows != 180 || s.SecondStage.QoSAccuracy < 0.95 {
		t.Errorf("4 folds: %+v", s)
	}
	// All right types, and one level that the user wants to be another: the truth
	// moves with the verdicts.
	beside, errs, code := runClassify(t, "eval", test, "--folds", "4", "--against", "src_port")
	if worse := regexp.MustCompile(`(?m)^level +180 .* better *$`); code != 0 || !worse.MatchString(beside) || !strings.Contains(beside, "src_port") {
		t.Errorf("beside the source port: %d, %s\n%s", code, errs, beside)
	}
	if s := evaluate(t, test, "--tree", model, "--level", "SERVICES=BE"); s.SecondStage.QoSAccuracy < 0.99 {
		t.Errorf("another level: %+v", s.SecondStage)
	}
	// What is never certain enough is BE, so the levels of mail and peers remain.
	own = evaluate(t, test)
	sure := evaluate(t, test, "--min-confidence", "1")
	if sure.QoSAccuracy >= own.QoSAccuracy || sure.Accuracy != own.Accuracy {
		t.Errorf("with confidence 1: %+v, before %+v", sure, own)
	}
	table, _, code := runClassify(t, "eval", test, "--tree", model)
	for _, want := range []string{"180 flows, classifier", "FIRST PACKET", "macro F1", "CONFIDENCE FROM", "Groups with the most wrong levels"} {
		if code != 0 || !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}
}

func TestClassifyExplain(t *testing.T) {
	out, errs, code := runClassify(t, "explain")
	if code != 0 || !strings.Contains(out, "service = EMAIL: EMAIL, BE") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	dir := t.TempDir()
	svg, binary := filepath.Join(dir, "t.svg"), filepath.Join(dir, "t.bin")
	for _, args := range [][]string{{"explain", "--stage", "2", "--svg", svg}, {"explain", "--binary", binary}} {
		if _, errs, code := runClassify(t, args...); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, errs)
		}
	}
	for path, want := range map[string]string{svg: "<svg", binary: "WTR1"} {
		if data, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(data), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	model, _, _ := runClassify(t, "explain", "-o", "json")
	path := filepath.Join(dir, "again.json")
	if err := os.WriteFile(path, []byte(model), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, errs, code := runClassify(t, "explain", "--tree", path); code != 0 || len(again) != len(out) {
		t.Errorf("printed and read again: exit code %d: %s", code, errs)
	}
}

func TestClassifyLabel(t *testing.T) {
	out, errs, code := runClassify(t, "label", "testdata/dns.pcap", "-o", "json")
	var flows []labelledFlow
	if err := json.Unmarshal([]byte(out), &flows); err != nil || code != 0 {
		t.Fatalf("exit code %d: %v: %s", code, err, errs)
	}
	if len(flows) != 1 || flows[0].First.Type != "SERVICES" || flows[0].First.QoS != "EF" || flows[0].DstPort != 53 || flows[0].Flow != "udp 198.18.0.1:40000 > 198.18.0.3:53" {
		t.Errorf("%+v", flows)
	}
	whole, err := os.ReadFile("testdata/dns.pcap")
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.pcap")
	if err := os.WriteFile(cut, whole[:len(whole)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code = runClassify(t, "label", cut)
	if code != 1 || !strings.Contains(out, "SERVICES") || !strings.Contains(errs, "cut off in the middle of a packet") {
		t.Errorf("a capture that is cut off: exit code %d: %s%s", code, out, errs)
	}
	table, _, code := runClassify(t, "label", flowTable(t, 3))
	if code != 0 || !strings.Contains(table, "line 2: ") {
		t.Errorf("a table: exit code %d: %s", code, table)
	}
	empty := filepath.Join(t.TempDir(), "empty.csv")
	if err := os.WriteFile(empty, []byte("proto,dst_port\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := runClassify(t, "label", empty); code != 0 || errs != "There is no flow of TCP or UDP in it.\n" {
		t.Errorf("without flows: exit code %d: %s", code, errs)
	}
}

func TestClassifyRefuses(t *testing.T) {
	good := flowTable(t, 1)
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	broken := write("broken.json", `{"format":1}`)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nothing":         {[]string{}, 2, "train, eval, explain or label"},
		"unknown":         {[]string{"guess"}, 2, `"guess" is no command`},
		"no file":         {[]string{"eval"}, 2, "FILE is missing"},
		"no such file":    {[]string{"eval", "/nowhere.csv"}, 1, "no such file"},
		"no out":          {[]string{"train", good}, 2, "--out is missing"},
		"missing columns": {[]string{"eval", write("a.csv", "a,b\n1,2\n")}, 1, "line 1: no column proto, dst_port, app_type"},
		"no flows":        {[]string{"eval", write("a.csv", "proto,dst_port,app_type\n")}, 1, "the table has no flows"},
		"NaN":             {[]string{"eval", write("a.csv", "proto,dst_port,app_type\n6,NaN,WEB\n")}, 1, "line 2: dst_port: it is missing"},
		"unknown class":   {[]string{"eval", write("a.csv", "proto,dst_port,app_type\n6,80,RADIO\n")}, 1, `line 2: app_type: "RADIO"`},
		"capture":         {[]string{"eval", "testdata/dns.pcap"}, 1, "whose flows have no labels"},
		"broken tree":     {[]string{"eval", good, "--tree", broken}, 1, "broken.json: read classifier: it has 0 application types"},
		"another file":    {[]string{"explain", "--tree", write("a.csv", "proto,dst_port\n")}, 1, "is it a file that weir classify train wrote?"},
		"svg and binary":  {[]string{"explain", "--svg", "/dev/null", "--binary", "/dev/null"}, 2, "exclude each other"},
		"no tree":         {[]string{"explain", "--tree", "/nowhere.json"}, 1, "no such file"},
		"zip":             {[]string{"label", write("a.gz", "\x1f\x8bxx")}, 1, "unzip"},
		"folds":           {[]string{"eval", good, "--folds", "1"}, 2, "want at least 2"},
		"many folds":      {[]string{"eval", good, "--folds", "100"}, 1, "take fewer --folds"},
		"by":              {[]string{"eval", good, "--folds", "3", "--by", "day"}, 2, "want group or flow"},
		"tree and folds":  {[]string{"eval", good, "--folds", "3", "--tree", broken}, 2, "exclude each other"},
		"train flags":     {[]string{"eval", good, "--features", "dst"}, 2, "which only --folds does"},
		"against":         {[]string{"eval", good, "--against", "dst"}, 2, "which only --folds does"},
		"against nothing": {[]string{"eval", good, "--folds", "3", "--against", "colour"}, 1, `"colour" is neither a feature nor a set`},
		"features":        {[]string{"eval", good, "--folds", "3", "--features", "colour"}, 1, `"colour" is neither a feature nor a set`},
		"prune":           {[]string{"eval", good, "--folds", "3", "--prune", "0.9"}, 2, "want 0 to 0.5"},
		"leaf":            {[]string{"eval", good, "--folds", "3", "--min-leaf", "0"}, 2, "want more than 0"},
		"depth":           {[]string{"eval", good, "--folds", "3", "--max-depth", "99"}, 2, "want 1 to 32"},
		"trees":           {[]string{"eval", good, "--folds", "3", "--trees", "9"}, 2, "want 1 to 8"},
		"rank":            {[]string{"eval", good, "--max-rank", "-1"}, 2, "want 0 or more"},
		"level":           {[]string{"eval", good, "--level", "WEB"}, 2, "is not TYPE=LEVEL"},
		"confidence":      {[]string{"eval", good, "--min-confidence", "2"}, 2, "want 0 to 1"},
		"stage":           {[]string{"explain", "--stage", "3"}, 2, "want 1 or 2"},
		"number":          {[]string{"explain", "--number", "3", "--svg", "/dev/null"}, 2, "--number 3: stage 1 has the trees 1 to 1"},
		"printed number":  {[]string{"explain", "--stage", "2", "--number", "9"}, 2, "--number 9: stage 2 has the trees 1 to 8"},
		"number 0":        {[]string{"explain", "--number", "0"}, 2, "--number 0: stage 1 has the trees 1 to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs, code := runClassify(t, c.args...)
			if code != c.code || !strings.Contains(errs, c.want) {
				t.Errorf("exit code %d, want %d; %q, want %q", code, c.code, errs, c.want)
			}
		})
	}
}
