package identity

import (
	"sync"
	"weak"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// types are the kernel's, which programs that look into its structures are fitted
// to. To read them takes longer than all else about loading, so programs loaded
// one after the other share them; afterwards nothing keeps them in memory.
var types struct {
	sync.Mutex
	cache weak.Pointer[btf.Cache]
}

// load loads what spec holds into objects, a pointer to a struct with the tag ebpf,
// and uses maps, by name, in place of new ones.
func load(spec *ebpf.CollectionSpec, objects any, maps map[string]*ebpf.Map) error {
	options := loadOptions()
	options.MapReplacements = maps
	return spec.LoadAndAssign(objects, &options)
}

// only are those of maps that spec has.
func only(maps map[string]*ebpf.Map, spec *ebpf.CollectionSpec) map[string]*ebpf.Map {
	out := map[string]*ebpf.Map{}
	for name, m := range maps {
		if spec.Maps[name] != nil {
			out[name] = m
		}
	}
	return out
}

// loadOptions have programs fitted to the types of the kernel proper. Left to itself,
// the library looks for them in all modules as well, of which some have copies of
// the kernel's own, and follows each copy to its ends: on a Debian kernel with 38
// modules that takes many times as long as all the rest. Weir uses no type of a
// module.
func loadOptions() ebpf.CollectionOptions {
	types.Lock()
	defer types.Unlock()
	cache := types.cache.Value()
	if cache == nil {
		cache = btf.NewCache()
		types.cache = weak.Make(cache)
	}
	options := ebpf.CollectionOptions{Cache: cache}
	// Without types the kernel refuses what needs them, and that is the error to
	// tell.
	if kernel, err := cache.Kernel(); err == nil {
		options.Programs.KernelTypes = kernel
	}
	return options
}
