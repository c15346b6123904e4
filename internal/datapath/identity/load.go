package identity

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"weak"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// types caches the kernel's types, to which programs that read kernel structures are adapted.
// Reading them takes longer than the rest of loading, so programs loaded in a row share them; then
// the memory is freed.
var types struct {
	sync.Mutex
	cache weak.Pointer[btf.Cache]
}

// load loads the programs and maps of spec into objects, a pointer to a struct with ebpf tags. Maps
// in maps, by name, are used instead of new ones.
func load(spec *ebpf.CollectionSpec, objects any, maps map[string]*ebpf.Map) error {
	options := optionsFor(spec)
	options.MapReplacements = maps
	return spec.LoadAndAssign(objects, &options)
}

// optionsFor adapts spec to the kernel, and returns how to load it.
func optionsFor(spec *ebpf.CollectionSpec) ebpf.CollectionOptions {
	options := loadOptions()
	if options.Programs.KernelTypes == nil {
		tagPackets(spec)
	}
	return options
}

// tagPackets marks each argument that is a packet as the program's context. The kernel verifies these
// functions by themselves; without types of its own (CONFIG_DEBUG_INFO_BTF, which Debian's for 32-bit ARM
// lacks) it does not know struct __sk_buff, but this mark (Linux 6.8), which in turn older ones refuse.
func tagPackets(spec *ebpf.CollectionSpec) {
	for _, program := range spec.Programs {
		for i := range program.Instructions {
			ins := &program.Instructions[i]
			if function := btf.FuncMetadata(ins); i > 0 && function != nil {
				*ins = btf.WithFuncMetadata(*ins, tagged(function))
			}
		}
	}
}

func tagged(function *btf.Func) *btf.Func {
	prototype, ok := function.Type.(*btf.FuncProto)
	if !ok {
		return function
	}
	out, outPrototype := *function, *prototype
	out.Type, out.ParamTags = &outPrototype, make([][]string, len(prototype.Params))
	outPrototype.Params = slices.Clone(prototype.Params)
	for i := range outPrototype.Params {
		parameter := &outPrototype.Params[i]
		pointer, ok := parameter.Type.(*btf.Pointer)
		if ok && pointer.Target.TypeName() == "__sk_buff" {
			parameter.Type, out.ParamTags[i] = &btf.Pointer{Target: &btf.Void{}}, []string{"arg:ctx"}
		}
	}
	return &out
}

// only returns those maps that spec names.
func only(maps map[string]*ebpf.Map, spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for name, m := range maps {
		if spec.Maps[name] != nil {
			out[name] = m
		}
	}
	return out
}

// loadOptions adapts programs to the types of the kernel proper. By default the library also
// searches all modules, some of which have copies of the kernel's types, and follows each copy: on
// a Debian kernel with 38 modules that takes many times as long as the rest. Weir uses no types of
// modules.
func loadOptions() ebpf.CollectionOptions {
	types.Lock()
	defer types.Unlock()
	cache := types.cache.Value()
	if cache == nil {
		cache = btf.NewCache()
		types.cache = weak.Make(cache)
	}
	options := ebpf.CollectionOptions{Cache: cache}
	// Without the kernel's types, go on: its own error for programs that need them is clearer.
	if kernel, err := cache.Kernel(); err == nil {
		options.Programs.KernelTypes = kernel
	}
	return options
}

// ProbePrograms returns errors that name the programs that this kernel cannot load: required ones,
// without which no agent runs, and optional ones. Programs with a Probe function of their own are
// left to that.
func ProbePrograms() (required, optional error) {
	taps, tapErr := NewTaps()
	if tapErr == nil {
		taps.Close()
	}
	bridges, bridgeErr := NewBridges()
	if bridgeErr == nil {
		bridgeErr = bridges.Close()
	}
	required = errors.Join(probeUplink(), tapErr, bridgeErr)
	for name, read := range map[string]func() (*ebpf.CollectionSpec, error){
		bypassProgWeirBypass: loadBypass, clearProgWeirClear: loadClear, belowProgWeirBelow: loadBelow, incomingProgWeirIncoming: loadIncoming,
	} {
		spec, err := read()
		if err == nil {
			var loaded *ebpf.Collection
			if loaded, err = ebpf.NewCollectionWithOptions(spec, optionsFor(spec)); err == nil {
				loaded.Close()
			}
		}
		if err != nil {
			optional = errors.Join(optional, fmt.Errorf("load %s: %w", name, err))
		}
	}
	return required, optional
}
