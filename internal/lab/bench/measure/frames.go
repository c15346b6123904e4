package measure

const (
	// FrameBytes is an Ethernet frame without FCS.
	FrameBytes = 1514
	// FIFOPackets is the default length of an interface's queue.
	FIFOPackets = 1000
)

// Headers in bytes: Ethernet and IPv4 with UDP, or with TCP and its timestamps
// option, which Linux sends by default.
const (
	UDPHeaderBytes = 14 + 20 + 8
	TCPHeaderBytes = 14 + 20 + 20 + 12
)
