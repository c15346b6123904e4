package openflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Reader splits a stream into messages by their length fields.
type Reader struct {
	r      io.Reader
	buffer []byte
	offset int64
	next   int64
}

// NewReader returns a Reader of r. It reads header and body separately, so r should be
// buffered.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Offset returns the stream offset of the last message.
func (r *Reader) Offset() int64 { return r.offset }

// Next returns the bytes of the next message, valid until the following call. It returns
// io.EOF if the stream ends between two messages. After any error the stream cannot be
// continued, because the start of the next message is unknown.
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
		if err := checkVersion(r.buffer); err != nil { // the length field would be meaningless
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
