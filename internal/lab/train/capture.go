package train

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/weir-project/weir/internal/apps/flow"
)

// packet is one packet of a capture.
type packet struct {
	at   time.Duration // since an arbitrary start
	link uint32        // LINKTYPE
	data []byte
}

// maxPacket is the largest plausible packet; a larger length means a damaged capture.
const maxPacket = 1 << 20

// ReadCapture splits a pcap or pcapng file into flows, ordered by their first packet. For a
// truncated or damaged capture it returns the flows read so far and an error.
func ReadCapture(r io.Reader) ([]*flow.Flow, error) {
	t := flow.NewTracker()
	err := readPackets(r, func(p packet) {
		if h, ok := flow.Parse(network(p.link, p.data)); ok {
			t.Add(h, p.at)
		}
	})
	if err != nil {
		return t.Flows(), fmt.Errorf("read capture: %w", err)
	}
	return t.Flows(), nil
}

// IsCapture reports whether a file that starts with head is a capture.
func IsCapture(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	_, _, ok := pcapMagic(head)
	return ok || bytes.Equal(head[:4], pcapngMagic)
}

var pcapngMagic = []byte{0x0a, 0x0d, 0x0d, 0x0a}

// pcapMagic returns the byte order and the time unit that a pcap file's magic number gives.
func pcapMagic(head []byte) (order binary.ByteOrder, unit time.Duration, ok bool) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		switch order.Uint32(head) {
		case 0xa1b2c3d4:
			return order, time.Microsecond, true
		case 0xa1b23c4d:
			return order, time.Nanosecond, true
		}
	}
	return nil, 0, false
}

// errCutOff says that a capture ends in the middle of a packet.
var errCutOff = errors.New("it is cut off in the middle of a packet: what came before was read")

// full reads len(b) bytes; at the end of the capture it returns io.EOF.
func full(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errCutOff
	}
	return err
}

// inside is full at a position where the end of the capture is an error.
func inside(r io.Reader, b []byte) error {
	if err := full(r, b); err != nil {
		if errors.Is(err, io.EOF) {
			return errCutOff
		}
		return err
	}
	return nil
}

// readPackets calls f for each packet of a pcap or pcapng file.
func readPackets(r io.Reader, f func(packet)) error {
	in := bufio.NewReader(r)
	head, err := in.Peek(4)
	if err != nil {
		return errors.New("it is too short for a capture")
	}
	if order, unit, ok := pcapMagic(head); ok {
		return readPcap(in, order, unit, f)
	}
	if bytes.Equal(head, pcapngMagic) {
		return readPcapng(in, f)
	}
	return errors.New("it is neither pcap nor pcapng")
}

func readPcap(r io.Reader, order binary.ByteOrder, unit time.Duration, f func(packet)) error {
	var head [24]byte
	if err := inside(r, head[:]); err != nil {
		return errors.New("its header is cut off")
	}
	link := order.Uint32(head[20:]) & 0x0fffffff // the upper bits are flags
	for {
		var record [16]byte
		err := full(r, record[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		size := order.Uint32(record[8:])
		if size > maxPacket {
			return fmt.Errorf("it says that a packet has %d bytes: it is damaged there", size)
		}
		p := packet{
			link: link, data: make([]byte, size),
			at: time.Duration(order.Uint32(record[0:]))*time.Second + time.Duration(order.Uint32(record[4:]))*unit,
		}
		if err := inside(r, p.data); err != nil {
			return err
		}
		f(p)
	}
}

// pcapngSection is the state shared by the blocks of a section.
type pcapngSection struct {
	order      binary.ByteOrder
	interfaces []pcapngInterface
	last       time.Duration
}

type pcapngInterface struct {
	link uint32
	unit float64 // seconds
}

// Types of pcapng blocks.
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 2
	blockSimple    = 3
	blockEnhanced  = 6
)

func readPcapng(r io.Reader, f func(packet)) error {
	s := pcapngSection{order: binary.LittleEndian}
	for {
		var head [12]byte // and the first word of the body
		err := full(r, head[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if bytes.Equal(head[:4], pcapngMagic) {
			s = pcapngSection{order: binary.LittleEndian}
			if binary.BigEndian.Uint32(head[8:]) == 0x1a2b3c4d {
				s.order = binary.BigEndian
			} else if binary.LittleEndian.Uint32(head[8:]) != 0x1a2b3c4d {
				return errors.New("a section of it has no byte order: it is damaged there")
			}
		}
		kind, size := s.order.Uint32(head[0:]), s.order.Uint32(head[4:])
		if size < 12 || size%4 != 0 || size > maxPacket {
			return fmt.Errorf("it says that a block has %d bytes: it is damaged there", size)
		}
		rest := make([]byte, size-12) // the body after its first word, and the repeated length
		if err := inside(r, rest); err != nil {
			return err
		}
		if size < 16 {
			continue
		}
		body := append(head[8:12:12], rest[:len(rest)-4]...)
		if err := s.block(kind, body, f); err != nil {
			return err
		}
	}
}

func (s *pcapngSection) block(kind uint32, body []byte, f func(packet)) error {
	short := fmt.Errorf("a block of it is shorter than its kind (%d) allows: it is damaged there", kind)
	switch kind {
	case blockInterface:
		if len(body) < 8 {
			return short
		}
		s.interfaces = append(s.interfaces, pcapngInterface{uint32(s.order.Uint16(body)), s.unit(body[8:])})
	case blockEnhanced, blockPacket:
		if len(body) < 20 {
			return short
		}
		number := s.order.Uint32(body)
		if kind == blockPacket {
			number = uint32(s.order.Uint16(body))
		}
		size := s.order.Uint32(body[12:])
		if uint64(size) > uint64(len(body)-20) {
			return short
		}
		if int(number) >= len(s.interfaces) {
			return fmt.Errorf("a packet of it is from interface %d of %d: it is damaged there", number, len(s.interfaces))
		}
		of := s.interfaces[number]
		ticks := float64(uint64(s.order.Uint32(body[4:]))<<32 | uint64(s.order.Uint32(body[8:])))
		if at := ticks * of.unit * float64(time.Second); at < math.MaxInt64 {
			s.last = time.Duration(at)
		}
		f(packet{at: s.last, link: of.link, data: body[20 : 20+size]})
	case blockSimple:
		if len(body) < 4 || len(s.interfaces) == 0 {
			return short
		}
		size := min(int(s.order.Uint32(body)&math.MaxInt32), len(body)-4)
		f(packet{at: s.last, link: s.interfaces[0].link, data: body[4 : 4+size]})
	}
	return nil
}

// unit returns the time unit from the option if_tsresol: a power of ten, or of two if the
// top bit is set.
func (s *pcapngSection) unit(options []byte) float64 {
	for len(options) >= 4 {
		code, size := s.order.Uint16(options), int(s.order.Uint16(options[2:]))
		options = options[4:]
		if code == 0 || size > len(options) {
			break
		}
		if code == 9 && size >= 1 {
			if v := options[0]; v&0x80 != 0 {
				return math.Pow(2, -float64(v&0x7f))
			}
			return math.Pow(10, -float64(options[0]))
		}
		options = options[min((size+3)&^3, len(options)):]
	}
	return 1e-6
}

// Link types of captures (LINKTYPE_*).
const (
	linkNull     = 0
	linkEthernet = 1
	linkRaw      = 101
	linkRawBSD   = 12
	linkRawOpen  = 14
	linkLoop     = 108
	linkCooked   = 113
	linkIPv4     = 228
	linkIPv6     = 229
	linkCooked2  = 276
)

// network returns the packet from the IP header on, or nil if it is not IP.
func network(link uint32, b []byte) []byte {
	switch link {
	case linkRaw, linkRawBSD, linkRawOpen, linkIPv4, linkIPv6:
		return b
	case linkNull, linkLoop:
		return from(b, 4)
	case linkEthernet:
		if len(b) < 14 {
			return nil
		}
		return afterTags(binary.BigEndian.Uint16(b[12:]), b[14:])
	case linkCooked:
		if len(b) < 16 {
			return nil
		}
		return afterTags(binary.BigEndian.Uint16(b[14:]), b[16:])
	case linkCooked2:
		if len(b) < 20 {
			return nil
		}
		return afterTags(binary.BigEndian.Uint16(b), b[20:])
	}
	return nil
}

func from(b []byte, n int) []byte {
	if len(b) < n {
		return nil
	}
	return b[n:]
}

// afterTags skips up to four VLAN tags, and PPPoE.
func afterTags(kind uint16, b []byte) []byte {
	for range 4 {
		switch kind {
		case 0x0800, 0x86dd:
			return b
		case 0x8100, 0x88a8, 0x9100:
			if len(b) < 4 {
				return nil
			}
			kind, b = binary.BigEndian.Uint16(b[2:]), b[4:]
		case 0x8864:
			return from(b, 8)
		default:
			return nil
		}
	}
	return nil
}
