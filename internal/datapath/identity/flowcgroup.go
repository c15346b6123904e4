package identity

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// AttachCgroup attaches the program that counts packets received by the sockets of the cgroup at
// path, and of cgroups below it, to the flows of number, for the second stage (bpf/answer.bpf.c).
// It serves host mode, where there is no tap. The program ends with the cgroup. It does nothing if
// the program is attached already. Errors: kernel.ErrNoCgroup; a kernel that cannot load the
// program; a program above the cgroup that allows no other.
func (f *Flows) AttachCgroup(path string, number uint16) error {
	want, err := f.loadAnswers(number)
	if err != nil {
		return err
	}
	defer want.Close()
	return withCgroup(path, func(fd int) error {
		old, err := programAt(fd, ebpf.AttachCGroupInetIngress, answerProgWeirAnswers)
		if err != nil {
			return err
		}
		if old != nil {
			defer old.Close()
			if same, err := f.sameAnswers(old, want); err != nil || same {
				return err
			}
			if err := detachProgram(fd, ebpf.AttachCGroupInetIngress, old); err != nil {
				return err
			}
		}
		err = link.RawAttachProgram(link.RawAttachProgramOptions{
			Target: fd, Program: want, Attach: ebpf.AttachCGroupInetIngress, Flags: unix.BPF_F_ALLOW_MULTI})
		if err != nil {
			return fmt.Errorf("count the received packets of cgroup %s: %w", path, err)
		}
		return nil
	})
}

// DetachCgroup detaches the program of AttachCgroup, if it is attached. Errors: kernel.ErrNoCgroup.
func DetachCgroup(path string) error {
	return detachCgroup(path, ebpf.AttachCGroupInetIngress, answerProgWeirAnswers)
}

// detachCgroup detaches the program of that name from the cgroup at path, if it is attached. Errors:
// kernel.ErrNoCgroup.
func detachCgroup(path string, at ebpf.AttachType, name string) error {
	return withCgroup(path, func(fd int) error {
		old, err := programAt(fd, at, name)
		if err != nil || old == nil {
			return err
		}
		defer old.Close()
		return detachProgram(fd, at, old)
	})
}

func detachProgram(fd int, at ebpf.AttachType, program *ebpf.Program) error {
	err := link.RawDetachProgram(link.RawDetachProgramOptions{Target: fd, Program: program, Attach: at})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("detach a program from a cgroup: %w", err)
	}
	return nil
}

// withCgroup calls fn with a descriptor of the cgroup's directory.
func withCgroup(path string, fn func(fd int) error) error {
	if _, err := kernel.LookUpCgroup(path); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, kernel.ErrNoCgroup)
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	return fn(int(dir.Fd()))
}

// programAt returns the program of that name attached to the cgroup itself; nil if there is none.
func programAt(fd int, at ebpf.AttachType, name string) (*ebpf.Program, error) {
	attached, err := link.QueryPrograms(link.QueryOptions{Target: fd, Attach: at})
	if err != nil {
		return nil, fmt.Errorf("list programs of a cgroup: %w", err)
	}
	for _, a := range attached.Programs {
		program, err := ebpf.NewProgramFromID(a.ID)
		if errors.Is(err, os.ErrNotExist) {
			continue // detached meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("open program %d: %w", a.ID, err)
		}
		info, err := program.Info()
		if err == nil && info.Name == name {
			return program, nil
		}
		_ = program.Close()
		if err != nil {
			return nil, fmt.Errorf("ask for the name of program %d: %w", a.ID, err)
		}
	}
	return nil, nil
}

// sameAnswers reports whether two programs have the same version, number and flow tables.
func (f *Flows) sameAnswers(old, want *ebpf.Program) (bool, error) {
	oldInfo, err := old.Info()
	if err != nil {
		return false, err
	}
	wantInfo, err := want.Info()
	if err != nil {
		return false, err
	}
	maps, _ := oldInfo.MapIDs()
	if oldInfo.Tag != wantInfo.Tag || !slices.Contains(maps, f.treesID) {
		return false, nil
	}
	had, err := answersNumber(old)
	if err != nil {
		return false, err
	}
	number, err := answersNumber(want)
	return had == number, err
}

// answersNumber returns the number that a program was loaded with, its only constant.
func answersNumber(program *ebpf.Program) (number uint32, err error) {
	m, err := mapOf(program, ".rodata")
	if err != nil {
		return 0, err
	}
	if m == nil {
		return 0, errors.New("the program at a cgroup has no constants")
	}
	defer m.Close()
	if err := m.Lookup(uint32(0), &number); err != nil {
		return 0, fmt.Errorf("read the number of the program at a cgroup: %w", err)
	}
	return number, nil
}

func (f *Flows) loadAnswers(number uint16) (*ebpf.Program, error) {
	spec, err := loadAnswer()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[answerVarContainerNumber].Set(uint32(number)); err != nil {
		return nil, fmt.Errorf("set the number of the program at a cgroup: %w", err)
	}
	var objects struct {
		Program *ebpf.Program `ebpf:"weir_answers"`
	}
	if err := load(spec, &objects, only(f.shared(), spec)); err != nil {
		return nil, fmt.Errorf("load the program at a cgroup: %w", err)
	}
	return objects.Program, nil
}
