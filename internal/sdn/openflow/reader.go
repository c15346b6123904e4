package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Reader cuts a stream into messages by their headers.
type Reader struct {
	r      io.Reader
	buffer []byte
	offset int64
	next   int64
}

// NewReader returns a Reader of r. It reads a header and then the rest, so a
// buffered r is faster.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Offset is where in the stream the last message begins.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the bytes of the next message, for Parse; they are overwritten
// by the call after. The error is io.EOF where the stream ends between two
// messages. There is no going on after any error: where the next message
// begins is not known.
func (r *Reader) Next() ([]byte, error) {
	r.offset = r.next
	r.buffer = append(r.buffer[:0], make([]byte, HeaderLen)...)
	if n, err := io.ReadFull(r.r, r.buffer); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, &Error{"ofp_header", n, err}
	}
	length := int(binary.BigEndian.Uint16(r.buffer[2:]))
	if length < HeaderLen {
		return nil, &Error{"ofp_header", 2, fmt.Errorf("length %d is less than a header's", length)}
	}
	r.buffer = append(r.buffer, make([]byte, length-HeaderLen)...)
	if n, err := io.ReadFull(r.r, r.buffer[HeaderLen:]); err != nil {
		if err := checkVersion(r.buffer); err != nil { // then the length means nothing either
			return nil, err
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, &Error{"ofp_header", HeaderLen + n, fmt.Errorf("%v of length %d: %w", Type(r.buffer[1]), length, err)}
	}
	r.next += int64(length)
	return r.buffer, nil
}
