package access

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// The tokens file has a line for each token: its name, its role, and the SHA-256 of
// the token, in hex. What follows # is a comment.
//
//	hub    read   5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8

const (
	tokenPrefix = "weir_" // so that scanners for leaked secrets know one
	tokenBytes  = 32
	// maxTokensBytes bounds the file; a line has about a hundred bytes.
	maxTokensBytes = 1 << 20
)

// tokens are callers by the hash of their token.
type tokens map[[sha256.Size]byte]Caller

func (t tokens) find(token string) (Caller, bool) {
	caller, ok := t[sha256.Sum256([]byte(token))]
	return caller, ok
}

func (t tokens) has(name string) bool {
	for _, caller := range t {
		if caller.Name == tokenCaller(name) {
			return true
		}
	}
	return false
}

func tokenCaller(name string) string { return "token " + name }

// readTokens reads the tokens file. A line that it does not understand makes the
// whole file invalid. Errors: fs.ErrNotExist.
func readTokens(path string) (tokens, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("read tokens: others than its owner may write %s: chmod 600 %[1]s", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxTokensBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	if len(data) > maxTokensBytes {
		return nil, fmt.Errorf("read tokens: %s has more than %d bytes: it is not a tokens file", path, maxTokensBytes)
	}
	return parseTokens(path, data)
}

func parseTokens(path string, data []byte) (tokens, error) {
	list := tokens{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	names := map[string]bool{}
	for number := 1; lines.Scan(); number++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		fail := func(what string) (tokens, error) {
			return nil, fmt.Errorf("%s:%d: %s; `weir token NAME` writes a line", path, number, what)
		}
		if len(fields) != 3 {
			return fail("a line is a name, a role and the SHA-256 of a token")
		}
		role, err := ParseRole(fields[1])
		if err != nil {
			return fail(fmt.Sprintf("%q %v", fields[1], err))
		}
		hash, err := hex.DecodeString(fields[2])
		if err != nil || len(hash) != sha256.Size {
			return fail(fmt.Sprintf("%q is not a SHA-256 in hex", fields[2]))
		}
		if names[fields[0]] {
			return fail(fmt.Sprintf("there is another token %q: delete one of the two lines", fields[0]))
		}
		names[fields[0]] = true
		list[[sha256.Size]byte(hash)] = Caller{Name: tokenCaller(fields[0]), Role: role}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read tokens: %s: %w", path, err)
	}
	return list, nil
}

// ErrName is a name that a token cannot have.
var ErrName = errors.New("not a name for a token")

// AddToken makes a token, writes its line into the file at path, which is made where
// there is none, and returns it. It is nowhere else. Errors: ErrName; there is a token
// of that name; the file is not one of tokens.
func AddToken(path, name string, role Role) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	file, err := lockTokens(path)
	if err != nil {
		return "", fmt.Errorf("add a token: %w", err)
	}
	defer file.Close() // ends the lock
	data, err := io.ReadAll(io.LimitReader(file, maxTokensBytes))
	if err != nil {
		return "", fmt.Errorf("add a token: %w", err)
	}
	list, err := parseTokens(path, data)
	if err != nil {
		return "", err
	}
	if list.has(name) {
		return "", fmt.Errorf("there is a token %q already: give this one another name, or delete the line of %[1]q in %s first, which takes that one back", name, path)
	}
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	hash := sha256.Sum256([]byte(token))
	if len(data) > 0 && data[len(data)-1] != '\n' {
		data = append(data, '\n')
	}
	data = fmt.Appendf(data, "%s %s %s\n", name, role, hex.EncodeToString(hash[:]))
	if len(data) > maxTokensBytes {
		return "", fmt.Errorf("add a token: %s would have more than %d bytes: delete lines of unused tokens", path, maxTokensBytes)
	}
	if err := replaceFile(path, data); err != nil {
		return "", fmt.Errorf("add a token: %w", err)
	}
	return token, nil
}

// lockTokens opens the tokens file with a lock for changes, and makes it if it is missing. A
// change replaces the file, so the lock counts only if it is on the file that is there now.
// Users who may not read the tokens cannot open the file, and so not hold the lock.
func lockTokens(path string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		locked, err := file.Stat()
		if err == nil {
			var there os.FileInfo
			if there, err = os.Stat(path); err == nil && os.SameFile(locked, there) {
				return file, nil
			}
		}
		file.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// checkName holds the name of a token to what a line can have and a terminal can show.
func checkName(name string) error {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool {
		return r == '#' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}) {
		return fmt.Errorf("%q is %w: write 1 to 64 characters, without spaces and #", name, ErrName)
	}
	return nil
}

// replaceFile writes a file that only its owner may read, whole or not at all.
func replaceFile(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}
