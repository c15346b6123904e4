package train

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/weir-project/weir/internal/apps/flow"
)

// generated are flows of n captures: each has applications of its own on their
// ports, and some on a port that says nothing, where only sizes tell.
func generated(seed uint64, n int) []*flow.Flow {
	random := rand.New(rand.NewPCG(seed, 3))
	kinds := []struct {
		appType          string
		proto, port      int
		client, response int
	}{
		{"SERVICES", flow.UDP, 53, 40, 120}, {"WEB", flow.TCP, 443, 517, 1400}, {"WEB", flow.TCP, 80, 300, 1400},
		{"EMAIL", flow.TCP, 25, 30, 60}, {"VOIP", flow.UDP, 5060, 500, 400}, {"INTERACTIVE", flow.TCP, 22, 21, 21},
		{"VOIP", flow.UDP, 0, 172, 172}, {"P2P", flow.UDP, 0, 1300, 20}, {"BULK", flow.TCP, 445, 100, 1460},
		{"GAME", flow.UDP, 27015, 25, 60}, {"CHAT", flow.TCP, 5222, 120, 200}, {"MULTIMEDIA", flow.TCP, 554, 130, 300},
	}
	var out []*flow.Flow
	for group := range n {
		for rank := range 4 {
			k := kinds[random.IntN(len(kinds))]
			f := flow.New()
			f.Group, f.Type, f.Rank, f.Line = fmt.Sprintf("g%d", group), k.appType, rank+1, len(out)+2
			port := k.port
			if port == 0 {
				port = 40000 + random.IntN(9000)
			}
			for column, v := range map[int]int{
				flow.Proto: k.proto, flow.DstPort: port, flow.SrcPort: 50000 + random.IntN(15000),
				flow.SYN: 0, flow.BytesClient: 10 * k.client, flow.BytesServer: 10 * k.response,
			} {
				f.Values[column] = float64(v)
			}
			if k.proto == flow.TCP {
				f.Values[flow.SYN] = 1
			}
			for i := range 6 {
				length := k.client + random.IntN(5)
				if i%2 == 1 {
					length = -k.response - random.IntN(5)
				}
				f.Values[flow.SeqLen1+2*i], f.Values[flow.SeqLen1+2*i+1] = float64(length), float64(random.IntN(20000))
			}
			out = append(out, f)
		}
	}
	return out
}

// without forgets a column.
func without(flows []*flow.Flow, column int) []*flow.Flow {
	for _, f := range flows {
		f.Values[column] = math.NaN()
	}
	return flows
}
