package runtime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/moby/moby/api/types/registry"
	"golang.org/x/sys/unix"
)

// Credential helpers are programs that keep logins for docker login
// (https://github.com/docker/docker-credential-helpers). They are the only programs that weir-edge
// starts, as root. So it takes them only from folders of PATH that other users cannot change.

const (
	// helperTimeout bounds a helper's answer: some ask a cloud for a token.
	helperTimeout = 10 * time.Second
	// tokenUser is the user of a login that is an identity token.
	tokenUser = "<token>"
	// noLogin is what helpers write if they have no login of a registry, and noUser if it has no user.
	noLogin, noUser = "credentials not found in native keychain", "no credentials username"
)

var helperName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// askHelper returns the login that a credential helper ("pass" for docker-credential-pass) has of a
// server; an empty one if it has none.
func askHelper(ctx context.Context, helper, server string) (login registry.AuthConfig, err error) {
	program := "docker-credential-" + helper
	defer func() {
		if err != nil {
			err = fmt.Errorf("ask %s for the login of %s: %w", program, server, err)
		}
	}()
	path, err := findHelper(program, os.Getenv("PATH"))
	if err != nil {
		return login, err
	}
	answer, err := runHelper(ctx, path, program, server)
	if said := strings.TrimSpace(string(answer)); err != nil && (strings.Contains(said, noLogin) || strings.Contains(said, noUser)) {
		return login, nil
	} else if err != nil {
		return login, fmt.Errorf("%w: %.200q: see what `echo %s | %s get` says as root", err, said, server, path)
	}
	var kept struct{ Username, Secret string }
	if err := json.Unmarshal(answer, &kept); err != nil {
		return login, fmt.Errorf("read its answer: %w", err)
	}
	login.ServerAddress = server
	if kept.Username == tokenUser {
		login.IdentityToken = kept.Secret
	} else {
		login.Username, login.Password = kept.Username, kept.Secret
	}
	return login, nil
}

// runHelper returns what the helper at a path writes for a server. It gets its own name, as path may
// be that of one program for many names.
func runHelper(ctx context.Context, path, name, server string) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, helperTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "get")
	cmd.Args[0] = name
	cmd.Stdin = strings.NewReader(server + "\n")
	cmd.Env = append(os.Environ(), "HOME="+home())
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) } // and what it has started
	cmd.WaitDelay = time.Second
	var written bytes.Buffer
	cmd.Stdout = &limited{&written}
	if err = cmd.Run(); ctx.Err() != nil {
		err = fmt.Errorf("it has not answered in time: %w", ctx.Err())
	}
	return written.Bytes(), err
}

// limited refuses what is more than a login has.
type limited struct{ to *bytes.Buffer }

func (l *limited) Write(part []byte) (int, error) {
	if l.to.Len()+len(part) > maxLoginBytes {
		return 0, io.ErrShortBuffer
	}
	return l.to.Write(part)
}

// findHelper returns the path of a program in the first folder of a search path that has it, with
// symbolic links resolved. Folders and programs that other users can change do not count.
func findHelper(program, searchPath string) (string, error) {
	if !helperName.MatchString(program) {
		return "", errors.New("this is not a program's name")
	}
	var refused error
	for _, folder := range filepath.SplitList(searchPath) {
		path, err := filepath.EvalSymlinks(filepath.Join(folder, program))
		if err != nil || !filepath.IsAbs(folder) {
			continue
		}
		if err := cmp.Or(checkOwner(folder), checkOwner(filepath.Dir(path)), checkOwner(path)); err != nil {
			refused = err
			continue
		}
		return path, nil
	}
	return "", cmp.Or(refused, fmt.Errorf("it is in no folder of PATH (%s): install it there, or log in without it: `docker login` with a config.json that does not name it", searchPath))
}

// checkOwner returns an error if users other than root and weir-edge's can change a file or folder.
func checkOwner(path string) error {
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if s.Uid != 0 && int(s.Uid) != os.Geteuid() || s.Mode&0o022 != 0 {
		return fmt.Errorf("users other than root can change %s: chown root %[1]s && chmod go-w %[1]s", path)
	}
	return nil
}
