package response

import (
	"math"
	"time"
)

// Statistics are of the last windowSlots*slotSeconds seconds, the present slot included; without a
// request in them, of the last slot with one.
const (
	slotSeconds = 3
	windowSlots = 10
)

// A histogram's bucket is as wide as a twentieth of its times: a percentile is right to 2.5 %.
const (
	leastTime  = 500 * time.Microsecond
	bucketStep = 1.05
	buckets    = 240 // up to a minute
)

func bucketOf(t time.Duration) int {
	if t <= leastTime {
		return 0
	}
	return min(int(math.Log(float64(t)/float64(leastTime))/math.Log(bucketStep)), buckets-1)
}

// timeOf returns the middle of a bucket.
func timeOf(bucket int) time.Duration {
	return time.Duration(float64(leastTime) * math.Pow(bucketStep, float64(bucket)+0.5))
}

// window is the distribution of a service's response times.
type window struct{ slots [windowSlots]slot }

type slot struct {
	number        int64 // since 1970; another number's content is old
	count         int
	sum, delivery time.Duration
	histogram     [buckets]uint32
}

func (w *window) add(at time.Time, took, delivery time.Duration) {
	number := at.Unix() / slotSeconds
	s := &w.slots[number%windowSlots]
	if s.number != number {
		*s = slot{number: number}
	}
	s.count++
	s.sum += took
	s.delivery += delivery
	s.histogram[bucketOf(took)]++
}

// newest returns the number of the last slot with a request.
func (w *window) newest() (number int64) {
	for i := range w.slots {
		number = max(number, w.slots[i].number)
	}
	return number
}

// summary is a window's content.
type summary struct {
	requests            int
	mean, p95, delivery time.Duration
}

// summary returns the statistics of a window, which has a request.
func (w *window) summary(now time.Time) summary {
	var all slot
	from := min(now.Unix()/slotSeconds-windowSlots+1, w.newest())
	for i := range w.slots {
		if s := &w.slots[i]; s.number >= from {
			all.count += s.count
			all.sum += s.sum
			all.delivery += s.delivery
			for b, n := range s.histogram {
				all.histogram[b] += n
			}
		}
	}
	seen := summary{requests: all.count, mean: all.sum / time.Duration(all.count), delivery: all.delivery / time.Duration(all.count)}
	below := 0
	for b, n := range all.histogram {
		if below += int(n); below*100 > all.count*95 {
			seen.p95 = timeOf(b)
			break
		}
	}
	return seen
}
