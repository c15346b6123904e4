package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/edge/runtime"
)

// A service is its proxy's container, and `docker system prune` removes containers that do not run,
// such as that of a service which waits for room. So what the container says is in a file as well,
// beside the proxy's folder, where no container reaches it. Removing a service removes the file
// before the container: a file without a container is a service that another program removed.
//
// Labels of a container never change, and a proxy that starts anew loses users. So an update changes
// the file, which counts where it is there.

// document is the content of such a file. Engine is the ID of the engine that has the container.
type document struct {
	Engine, Specification, Pinned string
	Update                        runtime.Update `json:",omitzero"`
}

const documentSuffix = ".json"

func (r *Runtime) documentPath(service string) string { return r.folder(service) + documentSuffix }

func (r *Runtime) saveDocument(engine string, s runtime.Service) error {
	text, err := json.Marshal(document{engine, s.Document, s.Pinned, s.Update})
	if err == nil {
		path := r.documentPath(s.Name)
		err = replace(filepath.Dir(path), filepath.Base(path), text, nil)
	}
	if err != nil {
		return fmt.Errorf("keep the specification of %s: %w", s.Name, err)
	}
	return nil
}

// lockFolder lets one weir-edge at a time update the services of a folder. It waits until ctx ends.
func lockFolder(ctx context.Context, folder string) (unlock func(), err error) {
	err = os.MkdirAll(folder, 0o700)
	var held *os.File
	if err == nil {
		held, err = os.Open(folder)
	}
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Flock(int(held.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = held.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", folder, err), held.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another weir-edge has locked %s: %w", folder, ctx.Err()), held.Close())
		case <-again.C:
		}
	}
}

func removeDocument(path, service string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the specification of %s: %w", service, err)
	}
	return nil
}

// readDocument reads a file; false if it is not there, or of another engine.
func readDocument(path, engine string) (kept document, found bool) {
	text, err := os.ReadFile(path)
	found = err == nil && json.Unmarshal(text, &kept) == nil && kept.Engine == engine
	return kept, found
}

// lost returns the services of this folder whose containers another program removed from the engine.
func (r *Runtime) lost(engine string, there []runtime.Service) (lost []runtime.Service) {
	known := map[string]bool{}
	for _, s := range there {
		known[s.Name] = true
	}
	files, _ := os.ReadDir(r.opts.Dir) // none before the first service
	for _, file := range files {
		name, is := strings.CutSuffix(file.Name(), documentSuffix)
		if !is || known[name] {
			continue
		}
		if kept, found := readDocument(r.documentPath(name), engine); found {
			lost = append(lost, runtime.Service{Name: name, Document: kept.Specification, Pinned: kept.Pinned, Update: kept.Update, Lost: true})
		}
	}
	return lost
}
