package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Series is what arrived over time, in bins of equal width.
type Series struct {
	// OriginNS is the start of the first bin, in CLOCK_MONOTONIC.
	OriginNS int64
	BinWidth time.Duration
	// Bytes has one row per slot and in it one value per bin; Other is the row of what is not for a slot's port.
	Bytes [][]uint64
	Other []uint64
}

// StartSeries clears the series and starts to fill it, from now on until its
// last bin or the next call. It returns the start of the first bin.
func (m *Meter) StartSeries() (originNS int64, err error) {
	if m.options.Bins == 0 {
		return 0, errors.New("record a series: the meter was made without bins")
	}
	if err := m.objects.OriginNs.Set(uint64(0)); err != nil {
		return 0, fmt.Errorf("stop the meter's series: %w", err)
	}
	if _, err := m.series.WriteAt(make([]byte, m.series.Size()), 0); err != nil {
		return 0, fmt.Errorf("clear the meter's series: %w", err)
	}
	originNS = monotonicNS()
	if err := m.objects.OriginNs.Set(uint64(originNS)); err != nil {
		return 0, fmt.Errorf("start the meter's series: %w", err)
	}
	return originNS, nil
}

// Series returns what was recorded since StartSeries, up to the last bin that
// is over.
func (m *Meter) Series() (Series, error) {
	var origin uint64
	if err := m.objects.OriginNs.Get(&origin); err != nil {
		return Series{}, fmt.Errorf("read the start of the meter's series: %w", err)
	}
	if origin == 0 {
		return Series{}, errors.New("read the meter's series: it was not started")
	}
	s := Series{OriginNS: int64(origin), BinWidth: m.options.BinWidth}
	over := int((monotonicNS() - s.OriginNS) / int64(s.BinWidth))
	over = min(over, m.options.Bins)
	row := make([]byte, over*8)
	for slot := range m.options.Slots + 1 {
		if _, err := m.series.ReadAt(row, int64(slot*m.options.Bins*8)); err != nil {
			return Series{}, fmt.Errorf("read the meter's series: %w", err)
		}
		bytes := make([]uint64, over)
		for i := range bytes {
			bytes[i] = binary.NativeEndian.Uint64(row[i*8:])
		}
		s.Bytes = append(s.Bytes, bytes)
	}
	s.Bytes, s.Other = s.Bytes[:m.options.Slots], s.Bytes[m.options.Slots]
	return s, nil
}

// Sum returns the sum of some slots, bin by bin.
func (s Series) Sum(slots ...int) []uint64 {
	sum := make([]uint64, len(s.Bytes[0]))
	for _, slot := range slots {
		for i, bytes := range s.Bytes[slot] {
			sum[i] += bytes
		}
	}
	return sum
}

// MostIn returns the largest sum of width neighbouring bins. A series shorter than that is one
// window.
func MostIn(bins []uint64, width int) uint64 {
	var sum, largest uint64
	for i, bytes := range bins {
		sum += bytes
		if i >= width {
			sum -= bins[i-width]
		}
		largest = max(largest, sum)
	}
	return largest
}
