package classify

import (
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// What this package takes for granted of the compiled programs. They are only
// parsed here, not loaded.

func TestUplinkObjects(t *testing.T) {
	spec, err := loadUplink()
	if err != nil {
		t.Fatal(err)
	}
	// OfferedBytes reads the map as an array of counters in shared memory,
	// one for each number.
	m := spec.Maps[uplinkMapActivities]
	if m == nil || m.Type != ebpf.Array || m.Flags&unix.BPF_F_MMAPABLE == 0 ||
		m.ValueSize != activityBytes || int(m.MaxEntries) != numbers {
		t.Errorf("activities: %v", m)
	}
	if numbers <= int(NumberLast) || NumberFirst <= NumberControl || NumberControl == NumberHost || NumberHost == 0 {
		t.Errorf("numbers: host %d, control %d, containers %d to %d of %d", NumberHost, NumberControl, NumberFirst, NumberLast, numbers)
	}
	if p := spec.Programs[uplinkProgWeirUplink]; p == nil || p.Type != ebpf.SchedCLS {
		t.Errorf("program: %v", p)
	}
	if err := spec.Variables[uplinkVarHtbMajor].Set(uint32(0x7e11)); err != nil {
		t.Error(err)
	}
}

func TestVethObjects(t *testing.T) {
	spec, err := loadVeth()
	if err != nil {
		t.Fatal(err)
	}
	// vethNumber reads the number from the start of the constants.
	v := spec.Variables[vethVarContainerNumber]
	if v == nil || v.Offset != 0 || v.Size() != 4 || !v.Constant() {
		t.Fatalf("number: %v", v)
	}
	for name, other := range spec.Variables {
		if other.SectionName == v.SectionName && name != vethVarContainerNumber {
			t.Errorf("another constant: %s", name)
		}
	}
	if p := spec.Programs[vethProgWeirVeth]; p == nil || p.Type != ebpf.SchedCLS {
		t.Errorf("program: %v", p)
	}
}

// A program is found again by its name, of which the kernel keeps 15 characters
// (BPF_OBJ_NAME_LEN); likewise a map.
func TestNamesFitTheKernel(t *testing.T) {
	for _, name := range []string{uplinkProgWeirUplink, vethProgWeirVeth, uplinkMapActivities} {
		if len(name) > 15 {
			t.Errorf("%s is %d characters long", name, len(name))
		}
	}
}
