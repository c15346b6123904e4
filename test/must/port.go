package must

import (
	"math/rand/v2"
	"net"
	"testing"
)

// FreePort returns a port of TCP and UDP that no program has. Linux takes ports of connections, and
// those of listeners that name none, from 32768 on (ip_local_port_range): none of them gets this one.
func FreePort(tb testing.TB) uint16 {
	tb.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		listener, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
		if err != nil {
			continue
		}
		socket, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
		listener.Close()
		if err == nil {
			socket.Close()
			return uint16(port)
		}
	}
	tb.Fatal("no port is free for TCP and UDP")
	return 0
}
