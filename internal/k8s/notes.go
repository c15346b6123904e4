package k8s

import (
	"context"
	"errors"
	"maps"
	"os"
	"reflect"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/k8s/claims"
)

// notesInterval is the pause between looks at what weir-dra has noted: a changed annotation is to be in
// force within a second.
const notesInterval = 250 * time.Millisecond

// notes are what weir-dra, which knows the API server, has noted of the node's pods.
type notes struct {
	ledger      claims.Ledger
	annotations claims.Annotations
}

// readNotes reads the notes in weir-dra's folder. What can be read is returned also with an error.
func readNotes(folder string) (n notes, err error) {
	var ledgerErr, annotationsErr error
	n.ledger, ledgerErr = claims.Load(claims.LedgerFile(folder))
	n.annotations, annotationsErr = claims.LoadAnnotations(claims.AnnotationsFile(folder))
	return n, errors.Join(ledgerErr, annotationsErr)
}

// labels returns the labels of a pod: those of its annotations, which it got when it started unless the notes
// have newer ones, and in place of its minimums those that it claimed.
func (n notes) labels(uid string, atStart map[string]string) map[string]string {
	latest, changed := n.annotations[uid]
	if !changed {
		latest = atStart
	}
	labels := map[string]string{}
	maps.Copy(labels, latest)
	for label, value := range n.ledger.Labels(uid) {
		if value == "" {
			delete(labels, label)
			continue
		}
		labels[label] = value
	}
	return labels
}

// watchNotes puts notes that weir-dra writes after a pod has started into force, until ctx ends.
func (p *plugin) watchNotes(ctx context.Context) {
	tick := time.NewTicker(notesInterval)
	defer tick.Stop()
	var seen noteFiles
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.lookAtNotes(ctx, &seen)
		}
	}
}

// lookAtNotes puts notes into force if their files are not those that were seen before.
func (p *plugin) lookAtNotes(ctx context.Context, seen *noteFiles) {
	now := noteFiles{stat(claims.LedgerFile(p.folder)), stat(claims.AnnotationsFile(p.folder))}
	if same(now[0], seen[0]) && same(now[1], seen[1]) {
		return
	}
	if _, err := readNotes(p.folder); err != nil {
		return // RunPodSandbox logs the error
	}
	_, err := p.reporter.update(ctx, func(b book) (v1.PodsChange, bool) {
		n, err := readNotes(p.folder)
		changed := err == nil && b.apply(n)
		return v1.PodsChange{All: b.list()}, changed
	})
	p.ignore(err)
	*seen = now
}

// noteFiles are the files of the notes; nil for one that is not there.
type noteFiles [2]os.FileInfo

// stat returns what is known of a file; nil if it is not there.
func stat(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// apply makes the labels of all pods what notes say, and reports whether one has changed.
func (b book) apply(n notes) (changed bool) {
	for id, pod := range b {
		labels := n.labels(pod.uid, pod.atStart)
		if reflect.DeepEqual(labels, pod.Labels) {
			continue
		}
		pod.Labels = labels
		b[id], changed = pod, true
	}
	return changed
}
