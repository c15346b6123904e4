package kernel

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// procTree is a directory like /proc.
type procTree struct {
	t   *testing.T
	dir string
}

// process adds a process with its cgroup, the network namespaces of its threads
// (the first is the process's own), those that it has open, and what it sees
// mounted.
func (p procTree) process(pid int, cgroup string, threads, open []string, mountNS, mounts string) {
	p.t.Helper()
	dir := filepath.Join(p.dir, strconv.Itoa(pid))
	link := func(target, name string) {
		p.t.Helper()
		name = filepath.Join(dir, name)
		must.Succeed(p.t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Succeed(p.t, os.Symlink(target, name))
	}
	link(threads[0], "ns/net")
	link(mountNS, "ns/mnt")
	for i, netns := range threads {
		link(netns, "task/"+strconv.Itoa(pid+i)+"/ns/net")
	}
	for i, target := range open {
		link(target, "fd/"+strconv.Itoa(i))
	}
	for name, text := range map[string]string{"cgroup": "0::" + cgroup + "\n", "mountinfo": mounts} {
		must.Succeed(p.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

func TestNetNSHolders(t *testing.T) {
	p := procTree{t, t.TempDir()}
	const (
		host      = "net:[1]"
		hostMnt   = "mnt:[1]"
		otherMnt  = "mnt:[2]"
		hostMount = "22 1 0:20 / / rw - ext4 /dev/vda rw\n30 22 0:4 net:[102] /run/netns/a rw shared:3 - nsfs nsfs rw\n"
		copied    = "40 1 0:20 / / rw - ext4 /dev/vda rw\n41 40 0:4 net:[103] /tmp/b rw - nsfs nsfs rw\n42 40 0:4 mnt:[104] /tmp/c rw - nsfs nsfs rw\n"
	)
	p.process(1, "/init.scope", []string{host}, nil, hostMnt, hostMount)
	p.process(20, "/a", []string{"net:[101]"}, []string{"net:[104]", "/dev/null", "socket:[104]"}, otherMnt, copied)
	p.process(30, "/b", []string{host, "net:[105]"}, []string{"net:[101]"}, otherMnt, copied)
	p.process(os.Getpid(), "/own", []string{"net:[106]"}, []string{"net:[106]"}, hostMnt, hostMount)
	must.Succeed(t, os.WriteFile(filepath.Join(p.dir, "stat"), nil, 0o644))
	for _, test := range []struct {
		name   string
		inodes []uint32
		want   []NetNSHolder
	}{
		{"a process", []uint32{101}, []NetNSHolder{{101, ByProcess, "20/ns/net", 20, "0::/a\n"}}},
		{"a mount of the host's", []uint32{102}, []NetNSHolder{{102, ByFile, "1/mountinfo", 1, "0::/init.scope\n"}}},
		{"a mount that two see", []uint32{103}, []NetNSHolder{
			{103, ByFile, "20/mountinfo", 20, "0::/a\n"}, {103, ByFile, "30/mountinfo", 30, "0::/b\n"},
		}},
		{"a descriptor", []uint32{104}, []NetNSHolder{{104, ByFile, "20/fd/0", 20, "0::/a\n"}}},
		{"a thread", []uint32{105}, []NetNSHolder{{105, ByProcess, "30/task/31/ns/net", 30, "0::/b\n"}}},
		{"only this process", []uint32{106}, nil},
		{"nobody", []uint32{10}, nil},
		{"nothing", nil, nil},
		{"some", []uint32{10, 101, 102}, []NetNSHolder{
			{101, ByProcess, "20/ns/net", 20, "0::/a\n"}, {102, ByFile, "1/mountinfo", 1, "0::/init.scope\n"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := NetNSHolders(p.dir, test.inodes)
			for i, h := range got {
				if !ShowsNetNS(h.Path, h.Inode) || ShowsNetNS(h.Path, h.Inode+1000) {
					t.Errorf("%s does not show %d, or others", h.Path, h.Inode)
				}
				got[i].Path, _ = filepath.Rel(p.dir, h.Path)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if ShowsNetNS(filepath.Join(p.dir, "99/ns/net"), 101) {
		t.Error("a process that has ended shows a namespace")
	}
}
