package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os/exec"
	"strings"
)

// Module is a module's file as the kernel loads it.
type Module struct {
	Name string
	Data []byte
}

// ModulesInOrder returns modules with all they depend on, in an order in which
// they can be loaded. What the kernel has built in is left out, and of the
// optional ones what it does not have.
func (u Unpacked) ModulesInOrder(ctx context.Context, names, optional []string) ([]Module, error) {
	var ordered []Module
	seen := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		if seen[name] || u.BuiltIn[name] {
			return nil
		}
		seen[name] = true
		packed, ok := u.Modules[name]
		if !ok {
			return fmt.Errorf("the kernel has no module %s", name)
		}
		data, err := packed.unpack(ctx)
		if err != nil {
			return fmt.Errorf("unpack module %s: %w", name, err)
		}
		depends, err := moduleDepends(data)
		if err != nil {
			return fmt.Errorf("read module %s: %w", name, err)
		}
		for _, needed := range depends {
			if err := add(needed); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		ordered = append(ordered, Module{name, data})
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	for _, name := range optional {
		if _, there := u.Modules[name]; !there {
			continue
		}
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

func (m PackedModule) unpack(ctx context.Context) ([]byte, error) {
	if !strings.HasSuffix(m.File, ".xz") {
		return m.Data, nil
	}
	cmd := exec.CommandContext(ctx, "xz", "-dc")
	cmd.Stdin = bytes.NewReader(m.Data)
	out, err := run(cmd)
	return []byte(out), err
}

// moduleDepends reads what a module says that it depends on.
func moduleDepends(data []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	var names []string
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			for name := range strings.SplitSeq(list, ",") {
				names = append(names, moduleName(name))
			}
		}
	}
	return names, nil
}
