package docker

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// replace writes a file of a folder, which it makes, unless its content is the same. After a power cut
// it is the old or the new one, whole; prepare, if any, is called before it is there. It follows no link
// out of the folder, because containers can write to some.
func replace(folder, name string, content []byte, prepare func(*os.File) error) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	fresh := name + ".new-"
	removeLeftovers(root, fresh)
	if there, err := root.ReadFile(name); err == nil && string(there) == string(content) {
		return nil
	}
	fresh += rand.Text() // another weir-edge may write it, too
	file, err := root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil && prepare != nil {
		err = prepare(file)
	}
	err = cmp.Or(err, file.Sync())
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, root.Remove(fresh))
	}
	if err := root.Rename(fresh, name); err != nil {
		return errors.Join(err, root.Remove(fresh))
	}
	within, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(within.Sync(), within.Close())
}

// removeLeftovers removes files that begin with prefix, of a weir-edge that was killed as it wrote them.
func removeLeftovers(root *os.Root, prefix string) {
	files, _ := fs.ReadDir(root.FS(), ".") // one that cannot be read has what it has
	for _, file := range files {
		if info, err := file.Info(); err == nil && strings.HasPrefix(file.Name(), prefix) && time.Since(info.ModTime()) > time.Minute {
			_ = root.Remove(file.Name()) // tried again with the next write
		}
	}
}
