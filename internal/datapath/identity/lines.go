package identity

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AdmitRoot lets a Unix socket receive from root's processes only (bpf/lines.bpf.c). Others may write,
// and what they write is dropped. Error: a kernel that cannot load the program.
func AdmitRoot(socket int) error {
	spec, err := loadLines()
	if err != nil {
		return err
	}
	var objects linesObjects
	if err := load(spec, &objects, nil); err != nil {
		return fmt.Errorf("load the socket's filter: %w", err)
	}
	defer objects.Close()
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, objects.WeirLines.FD()); err != nil {
		return fmt.Errorf("attach the socket's filter: %w", err)
	}
	return nil
}
