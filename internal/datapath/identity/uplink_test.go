package identity

import (
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/share/sched"
	"github.com/weir-project/weir/test/must"
)

// What this package takes for granted of the compiled programs. They are only
// parsed here, not loaded.

func TestUplinkObjects(t *testing.T) {
	spec, err := loadUplink()
	must.Succeed(t, err)
	// The map is read and written as an array in shared memory, with one entry
	// for each number.
	m := spec.Maps[uplinkMapActivities]
	if m == nil || m.Type != ebpf.Array || m.Flags&unix.BPF_F_MMAPABLE == 0 ||
		m.ValueSize != activityBytes || int(m.MaxEntries) != numbers {
		t.Errorf("activities: %v", m)
	}
	const largestPageBytes = 64 << 10
	if m := spec.Maps[uplinkMapWakeups]; m == nil || m.Type != ebpf.RingBuf || m.MaxEntries%largestPageBytes != 0 {
		t.Errorf("wake-ups, which have to be whole pages: %v", m)
	}
	if v := spec.Variables[uplinkVarCgroupLevels]; v == nil || v.SectionName != ".bss" || v.Size() != 8 {
		t.Errorf("levels of cgroups: %v", v)
	}
	if numbers <= int(NumberLast) || NumberFirst <= NumberControl || NumberControl == NumberHost || NumberHost == 0 {
		t.Errorf("numbers: host %d, control %d, containers %d to %d of %d", NumberHost, NumberControl, NumberFirst, NumberLast, numbers)
	}
	var a uplinkWeirActivity
	if unsafe.Sizeof(a) != activityBytes || unsafe.Offsetof(a.ClassedBytes) != classedBytesOffset ||
		unsafe.Offsetof(a.DirectBytes) != directBytesOffset || unsafe.Offsetof(a.MayGoDirect) != mayGoDirectOffset {
		t.Errorf("an entry of activities has another layout: %+v", a)
	}
	if m := spec.Maps[uplinkMapMinors]; m == nil || m.Type != ebpf.Array || m.ValueSize != uint32(unsafe.Sizeof(uplinkWeirMinors{})) || int(m.MaxEntries) != numbers {
		t.Errorf("minors: %v", m)
	}
	if m := spec.Maps[uplinkMapClassActivity]; m == nil || m.Type != ebpf.Hash || m.Flags != unix.BPF_F_NO_PREALLOC ||
		m.ValueSize != uint32(unsafe.Sizeof(uplinkWeirClassActivity{})) || int(m.MaxEntries) != numbers {
		t.Errorf("classes' activity, of which only containers with classes may take memory: %v", m)
	}
	for class, c := range map[sched.TrafficClass]uplinkWeirClass{
		sched.Unclassified: uplinkWeirClassWEIR_CLASS_NONE, sched.EF: uplinkWeirClassWEIR_CLASS_EF, sched.AF: uplinkWeirClassWEIR_CLASS_AF,
		sched.BE: uplinkWeirClassWEIR_CLASS_BE, sched.NumTrafficClasses: uplinkWeirClassWEIR_CLASSES,
	} {
		if uint32(class) != uint32(c) {
			t.Errorf("class %q is %d in the programs", class, c)
		}
	}
	// The tag of the last number with the last class is not the kernel's "no queue".
	last := int(uplinkWeirTagWEIR_TAG_BASE) | int(sched.BE)<<uplinkWeirTagWEIR_TAG_CLASS_SHIFT | int(NumberLast)
	if last >= 0xffff || int(NumberLast) > int(uplinkWeirTagWEIR_TAG_NUMBER_MASK) || sched.NumTrafficClasses != len(ClassOffered{}.Bytes) {
		t.Errorf("the largest tag is %#x", last)
	}
	for _, name := range []string{uplinkProgWeirUplink, uplinkProgWeirUplinkOld} {
		if p := spec.Programs[name]; p == nil || p.Type != ebpf.SchedCLS {
			t.Errorf("program %s: %v", name, p)
		}
	}
	for _, name := range []string{uplinkVarClassMajor, uplinkVarDirectMajor} {
		if err := spec.Variables[name].Set(uint32(0x7e11)); err != nil {
			t.Error(err)
		}
	}
}

// Types of modules, of which there may be hundreds, are not looked at.
func TestTypesAreTheKernels(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("this kernel does not tell its types")
	}
	one, two := loadOptions(), loadOptions()
	if one.Programs.KernelTypes == nil {
		t.Error("the library is left to look for types itself")
	}
	if one.Cache != two.Cache || one.Programs.KernelTypes != two.Programs.KernelTypes {
		t.Error("types are read once more for the next program")
	}
	runtime.KeepAlive(one)
}

func TestTapObjects(t *testing.T) {
	spec, err := loadTap()
	must.Succeed(t, err)
	// readTapConstants reads the constants one after the other.
	number, priority := spec.Variables[tapVarContainerNumber], spec.Variables[tapVarTagPriority]
	if number == nil || number.Offset != 0 || number.Size() != 4 || !number.Constant() {
		t.Errorf("number: %v", number)
	}
	if priority == nil || priority.Offset != 4 || priority.Size() != 4 || !priority.Constant() {
		t.Errorf("priority: %v", priority)
	}
	for name, other := range spec.Variables {
		if other.Constant() && other.SectionName == number.SectionName && other.Offset > 4 {
			t.Errorf("another constant: %s", name)
		}
	}
	if p := spec.Programs[tapProgWeirTap]; p == nil || p.Type != ebpf.SchedCLS {
		t.Errorf("program: %v", p)
	}
}

func TestPackLevels(t *testing.T) {
	for _, test := range []struct {
		levels []int
		want   uint64
	}{
		{nil, 0},
		{[]int{2}, 0x02},
		{[]int{2, 5, 4}, 0x020405},
		{[]int{1, 2, 3, 4, 5, 6, 7, 255}, 0x01020304050607ff},
	} {
		set := map[int]bool{}
		for _, level := range test.levels {
			set[level] = true
		}
		if got := packLevels(set); got != test.want {
			t.Errorf("levels %v: %#x, want %#x", test.levels, got, test.want)
		}
	}
}

// A program is found again by its name, of which the kernel keeps 15 characters
// (BPF_OBJ_NAME_LEN); likewise a map.
func TestNamesFitTheKernel(t *testing.T) {
	for _, name := range []string{uplinkProgWeirUplink, tapProgWeirTap, uplinkMapActivities, uplinkMapCgroups, uplinkMapMinors, uplinkMapClassActivity} {
		if len(name) > 15 {
			t.Errorf("%s is %d characters long", name, len(name))
		}
	}
}
