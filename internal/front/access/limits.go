package access

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxLimited is the number of callers with individual limits; further callers share one.
const maxLimited = 4096

// Limits is a rate limit for each of many callers.
type Limits struct {
	perSecond rate.Limit
	burst     int

	mu     sync.Mutex
	by     map[string]*rate.Limiter
	others *rate.Limiter
}

// NewLimits returns limits of perSecond events a second and bursts of burst events.
func NewLimits(perSecond float64, burst int) *Limits {
	limit := rate.Limit(perSecond)
	return &Limits{perSecond: limit, burst: burst, by: map[string]*rate.Limiter{}, others: rate.NewLimiter(limit, burst)}
}

// Allow counts one event of a caller and reports whether it is within the limit.
func (l *Limits) Allow(caller string, now time.Time) bool { return l.AllowN(caller, now, 1) }

// AllowN counts n events of a caller at once, unless they exceed the limit, and reports whether they do not.
func (l *Limits) AllowN(caller string, now time.Time, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.by[caller]
	if limiter == nil {
		if len(l.by) >= maxLimited {
			l.dropIdle(now)
		}
		if limiter = l.others; len(l.by) < maxLimited {
			limiter = rate.NewLimiter(l.perSecond, l.burst)
			l.by[caller] = limiter
		}
	}
	return limiter.AllowN(now, n)
}

// dropIdle drops callers that could use their whole burst again.
func (l *Limits) dropIdle(now time.Time) {
	for caller, limiter := range l.by {
		if limiter.TokensAt(now) >= float64(l.burst) {
			delete(l.by, caller)
		}
	}
}

// Network returns the key under which an address and port is limited: the IPv4 address, or the
// /64 network of an IPv6 address, since one host may have all addresses of that.
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
