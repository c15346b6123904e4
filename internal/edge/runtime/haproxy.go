package runtime

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/weir-project/weir/internal/edge/proxy"
)

// changelog is where the packages of Debian and Ubuntu say their version, in the first line:
// "haproxy (2.4.24-0ubuntu0.22.04.1) jammy-security; urgency=medium".
const changelog = "/usr/share/doc/haproxy/changelog.Debian.gz"

var packageVersion = regexp.MustCompile(`^haproxy \((?:\d+:)?(\d+)\.(\d+)`)

// CheckProxy returns an error if this host has no HAProxy, or one whose package says that it is too
// old. weir-edge does not start HAProxy, so another version shows when it is told of instances. root is
// the folder of the host's files.
func CheckProxy(root string) error {
	if _, err := os.Stat(filepath.Join(root, proxy.Binary)); err != nil {
		return errors.New("HAProxy is not installed: apt-get install haproxy")
	}
	if found := packageVersion.FindSubmatch(firstLine(filepath.Join(root, changelog))); found != nil {
		major, _ := strconv.Atoi(string(found[1]))
		minor, _ := strconv.Atoi(string(found[2]))
		if major < 2 || major == 2 && minor < 6 {
			return fmt.Errorf("HAProxy %d.%d is here: %w", major, minor, proxy.ErrTooOld)
		}
	}
	return nil
}

// firstLine returns the first line of a compressed file; nothing if there is none.
func firstLine(path string) (line []byte) {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	if text, err := gzip.NewReader(file); err == nil {
		line, _, _ = bufio.NewReader(text).ReadLine()
	}
	return line
}
