package uplot

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// TestFilesAreWhatTheReadmeSays: nobody edits the library in place, and who
// takes another release says so.
func TestFilesAreWhatTheReadmeSays(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(readme), "# uPlot "+Version+"\n") {
		t.Errorf("README.md is not about version %s", Version)
	}
	if !strings.Contains(Script[:min(len(Script), 100)], "(v"+Version+")") {
		t.Errorf("the script is not version %s", Version)
	}
	for name, text := range map[string]string{"uPlot.iife.min.js": Script, "uPlot.min.css": Style} {
		sum := sha256.Sum256([]byte(text))
		if row := "| `" + name + "` | `" + hex.EncodeToString(sum[:]) + "` |"; !strings.Contains(string(readme), row) {
			t.Errorf("README.md lacks %s", row)
		}
	}
}
