// Package store keeps what weir-edge has measured and seen: in one file, beside which
// nothing is needed, and without which only time is lost.
//
// What should run is not in here; that lives in the engine. So a file that cannot be
// read or written is no reason to stop: who writes gets an error to show, and goes on.
package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
type Store struct{ db *bolt.DB }

// StartUp is what was measured when instances of an image were last started.
type StartUp struct {
	// Seconds is from the decision to the first answer, the transfer left out.
	Seconds float64 `json:"seconds"`
	// TransferSeconds is how long the image took, when it was last fetched.
	TransferSeconds float64 `json:"transfer_seconds,omitempty"`
	ImageBytes      uint64  `json:"image_bytes,omitempty"`
}

// Presence is for how long a node was watched, and was there.
type Presence struct {
	WatchedSeconds float64 `json:"watched_seconds"`
	ThereSeconds   float64 `json:"there_seconds"`
}

// ErrInUse is a file that another weir-edge has open.
var ErrInUse = errors.New("another weir-edge has it open: stop that one, or give this one another --state-dir")

// Open opens or makes the file.
func Open(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the measurements: %w", err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: openTimeout})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("open the measurements in %s: %w", path, ErrInUse)
	} else if err != nil {
		return nil, fmt.Errorf("open the measurements in %s: %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{startUps, events, nodes} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the measurements in %s: %w", path, err), db.Close())
	}
	return &Store{db}, nil
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

func (s *Store) put(bucket, key []byte, value any) error {
	data, err := json.Marshal(value)
	if err == nil {
		err = s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucket).Put(key, data) })
	}
	if err != nil {
		return fmt.Errorf("keep a measurement: %w", err)
	}
	return nil
}

// get leaves value alone where there is nothing, or nothing that can be read.
func (s *Store) get(bucket, key []byte, value any) {
	_ = s.db.View(func(tx *bolt.Tx) error {
		_ = json.Unmarshal(tx.Bucket(bucket).Get(key), value)
		return nil
	})
}

// StartUp is what is known of an image; the zero value is nothing.
func (s *Store) StartUp(image string) (u StartUp) {
	s.get(startUps, []byte(image), &u)
	return u
}

// SetStartUp keeps what was measured of an image.
func (s *Store) SetStartUp(image string, u StartUp) error { return s.put(startUps, []byte(image), u) }

// Presence is what is known of a node.
func (s *Store) Presence(node string) (p Presence) {
	s.get(nodes, []byte(node), &p)
	return p
}

// SetPresence keeps what was seen of nodes.
func (s *Store) SetPresence(seen map[string]Presence) error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		for name, p := range seen {
			data, err := json.Marshal(p)
			if err != nil {
				return err
			}
			if err := tx.Bucket(nodes).Put([]byte(name), data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep what was seen of nodes: %w", err)
	}
	return nil
}

// AddEvents keeps events and forgets those that are too old.
func (s *Store) AddEvents(list []edge.Event) error {
	err := s.db.Update(func(tx *bolt.Tx) error {
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
		return fmt.Errorf("keep events: %w", err)
	}
	return nil
}

// Events are those that are kept, the oldest first.
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

// number sorts as numbers do.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
