// Package store keeps what weir-edge has measured and seen: in one file, beside which
// nothing is needed, and without which only time is lost.
//
// What should run is not in here; that lives in the engine. So a file that cannot be
// read or written is no reason to stop: one that is damaged is put aside, and who writes
// gets an error to show, and goes on.
package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/weir-project/weir/api/v1/edge"
)

// openTimeout bounds the wait for another weir-edge that has the file open.
const openTimeout = time.Second

// keptEvents is how many events are kept.
const keptEvents = 1000

var (
	startUps = []byte("start-ups") // by image: StartUp
	events   = []byte("events")    // by number: edge.Event
	nodes    = []byte("nodes")     // by name: Availability
)

// Store is an open file. Its methods may be called concurrently.
type Store struct {
	db *bolt.DB

	mu sync.Mutex
	// waiting are events not written yet, oldest first.
	waiting []edge.Event
	// measured are values not written yet.
	measured map[measurement][]byte
	kept     func(error)
	wake     chan struct{} // has the writer look
	closing  chan struct{} // ends it, when all is written
	writer   sync.WaitGroup
}

// StartUp is what the last starts of an image took.
type StartUp struct {
	// Seconds is from the decision to the first answer, the transfer left out.
	Seconds float64 `json:"seconds"`
	// TransferSeconds is how long the image took, when it was last fetched.
	TransferSeconds float64 `json:"transfer_seconds,omitempty"`
	ImageBytes      uint64  `json:"image_bytes,omitempty"`
}

// Presence is how long a node was watched, and was there meanwhile.
type Presence struct {
	WatchedSeconds float64 `json:"watched_seconds"`
	ThereSeconds   float64 `json:"there_seconds"`
}

// ErrInUse is the error of a file that another weir-edge has open.
var ErrInUse = errors.New("another weir-edge has it open: stop that one, or give this one another --state-dir")

// Open opens or makes the file. One that is damaged gets another name, and the log says so.
func Open(path string, log *slog.Logger) (*Store, error) {
	folder := filepath.Dir(path)
	// Folders above are not weir-edge's alone: all users may read what weir advise keeps in /var/lib/weir.
	err := os.MkdirAll(filepath.Dir(folder), 0o755)
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("open the measurements: %w", err)
	}
	db, err := open(path)
	var damaged *damagedError
	if errors.As(err, &damaged) {
		aside := path + ".damaged"
		log.Warn("the measurements are damaged and begin anew; services are not affected", "error", err, "kept_as", aside)
		if err = os.Rename(path, aside); err == nil {
			db, err = open(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the measurements in %s: %w", path, err)
	}
	s := &Store{db: db, measured: map[measurement][]byte{}, wake: make(chan struct{}, 1), closing: make(chan struct{})}
	s.writer.Go(s.write)
	return s, nil
}

// damagedError is the error of a file that cannot be read.
type damagedError struct{ error }

// open opens the file and reads it completely once. A damaged file is left open, because closing it
// could crash.
func open(path string) (db *bolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // the file is mapped, and may end early
	defer func() {
		if why := recover(); why != nil {
			db, err = nil, &damagedError{fmt.Errorf("it cannot be read: %v", why)}
		}
	}()
	db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: openTimeout})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, ErrInUse
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return nil, &damagedError{err}
	case err != nil:
		return nil, err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if about, err := os.Stat(path); err != nil {
			return err
		} else if about.Size() < tx.Size() {
			return &damagedError{fmt.Errorf("it has %d bytes of %d", about.Size(), tx.Size())}
		}
		for _, name := range [][]byte{startUps, events, nodes} {
			bucket, err := tx.CreateBucketIfNotExists(name)
			if err == nil {
				err = bucket.ForEach(func(_, _ []byte) error { return nil })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Close writes what waits and closes the file. Later events are lost.
func (s *Store) Close() error {
	close(s.closing)
	s.writer.Wait()
	return s.db.Close()
}

// measurement is where a value is kept.
type measurement struct{ bucket, key string }

// put keeps a value. It is written soon and read from here until then.
func (s *Store) put(bucket []byte, key string, value any, kept func(error)) {
	data, err := json.Marshal(value)
	if err != nil {
		kept(fmt.Errorf("keep a measurement: %w", err))
		return
	}
	s.mu.Lock()
	s.measured[measurement{string(bucket), key}] = data
	s.kept = kept
	s.mu.Unlock()
	s.wakeWriter()
}

// get decodes a stored value; without one, or with an unreadable one, value stays unchanged.
func (s *Store) get(bucket []byte, key string, value any) {
	s.mu.Lock()
	data, waits := s.measured[measurement{string(bucket), key}]
	s.mu.Unlock()
	if waits {
		_ = json.Unmarshal(data, value)
		return
	}
	_ = s.db.View(func(tx *bolt.Tx) error {
		_ = json.Unmarshal(tx.Bucket(bucket).Get([]byte(key)), value)
		return nil
	})
}

// wakeWriter has the writer look. A caller waits for no disk: an SD card may take seconds.
func (s *Store) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// StartUp returns what is known of an image; the zero value is nothing.
func (s *Store) StartUp(image string) (u StartUp) {
	s.get(startUps, image, &u)
	return u
}

// SetStartUp keeps what was measured of an image. It returns at once; kept is called with the result.
func (s *Store) SetStartUp(image string, u StartUp, kept func(error)) {
	s.put(startUps, image, u, kept)
}

// Presence returns what is known of a node.
func (s *Store) Presence(node string) (p Presence) {
	s.get(nodes, node, &p)
	return p
}

// SetPresence keeps what was seen of nodes. It returns at once; kept is called with the result.
func (s *Store) SetPresence(seen map[string]Presence, kept func(error)) {
	for name, p := range seen {
		s.put(nodes, name, p, kept)
	}
}

// AddEvent stores an event and drops the oldest ones. It returns at once; the event is written
// soon, together with others. kept is called with the result.
func (s *Store) AddEvent(event edge.Event, kept func(error)) {
	s.mu.Lock()
	s.waiting = append(s.waiting, event)
	s.waiting = s.waiting[max(0, len(s.waiting)-keptEvents):]
	s.kept = kept
	s.mu.Unlock()
	s.wakeWriter()
}

// write writes what waits until Close.
func (s *Store) write() {
	for open := true; open; {
		select {
		case <-s.wake:
		case <-s.closing:
			open = false
		}
		s.mu.Lock()
		list, values, kept := s.waiting, maps.Clone(s.measured), s.kept
		s.waiting = nil
		s.mu.Unlock()
		if len(list)+len(values) == 0 {
			continue
		}
		err := s.add(list, values)
		s.mu.Lock()
		maps.DeleteFunc(s.measured, func(at measurement, data []byte) bool { return err == nil && bytes.Equal(values[at], data) })
		s.mu.Unlock()
		kept(err)
	}
}

// add writes events and values.
func (s *Store) add(list []edge.Event, values map[measurement][]byte) error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		for at, data := range values {
			if err := tx.Bucket([]byte(at.bucket)).Put([]byte(at.key), data); err != nil {
				return err
			}
		}
		b := tx.Bucket(events)
		for _, e := range list {
			data, err := json.Marshal(e)
			if err != nil {
				return err
			}
			if err := b.Put(number(e.Seq), data); err != nil {
				return err
			}
		}
		var keys [][]byte
		if err := b.ForEach(func(key, _ []byte) error { keys = append(keys, key); return nil }); err != nil {
			return err
		}
		for _, key := range keys[:max(0, len(keys)-keptEvents)] {
			if err := b.Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep measurements and events: %w", err)
	}
	return nil
}

// Events returns the events that are kept, the oldest first.
func (s *Store) Events() (list []edge.Event, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(events).ForEach(func(_, data []byte) error {
			var e edge.Event
			if json.Unmarshal(data, &e) == nil {
				list = append(list, e)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return list, nil
}

// number encodes a number so that keys sort numerically.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
