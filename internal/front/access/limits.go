package access

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxLimited is how many callers are told apart by Limits; all others share one limit.
const maxLimited = 4096

// Limits bound how often each of many may do something.
type Limits struct {
	perSecond rate.Limit
	burst     int

	mu     sync.Mutex
	by     map[string]*rate.Limiter
	others *rate.Limiter
}

// NewLimits returns limits of so many times a second, and burst at once.
func NewLimits(perSecond float64, burst int) *Limits {
	limit := rate.Limit(perSecond)
	return &Limits{perSecond: limit, burst: burst, by: map[string]*rate.Limiter{}, others: rate.NewLimiter(limit, burst)}
}

// Allow says whether who may do it once more now.
func (l *Limits) Allow(who string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.by[who]
	if limiter == nil {
		if len(l.by) >= maxLimited {
			l.forget(now)
		}
		if limiter = l.others; len(l.by) < maxLimited {
			limiter = rate.NewLimiter(l.perSecond, l.burst)
			l.by[who] = limiter
		}
	}
	return limiter.AllowN(now, 1)
}

// forget drops those who may do all that they could at first.
func (l *Limits) forget(now time.Time) {
	for who, limiter := range l.by {
		if limiter.TokensAt(now) >= float64(l.burst) {
			delete(l.by, who)
		}
	}
}

// Network is what an address and port is limited as: its address, or its network of 64
// bits, as whoever has one such address of IPv6 has many.
func Network(addressPort string) string {
	parsed, err := netip.ParseAddrPort(addressPort)
	if err != nil {
		return ""
	}
	address := parsed.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, _ := address.Prefix(64) // is of the right length
	return network.String()
}
