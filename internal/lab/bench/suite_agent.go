package bench

import (
	"fmt"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

const agentNote = "CPU time is the run time of the agent's threads as the kernel's scheduler counts it, without what its packets' " +
	"treatment costs the senders. Memory is what the agent has resident and its BPF maps and programs with an open descriptor; programs " +
	"that only a container's interface or cgroup keeps, and their maps of constants, are in no process and not counted. The cost of a packet shows in how many of 64 bytes one container can send a second."

// agentSuite measures what the agent itself costs: CPU time and memory beside
// containers that idle and that send; and, with one container up to as many as
// a host may have, the time to start and the cost of a packet, which must not
// depend on their number.
func agentSuite(options Options) []Case {
	var cases []Case
	group := fmt.Sprintf("%d containers at %s", options.Containers, policy.FormatRate(options.RateBPS))
	for _, load := range []struct {
		name    string
		sending int
	}{
		{"idle", 0}, {"5 send", 5}, {"all send", options.Containers},
	} {
		containers := randomContainers(options.Containers, options.Seed)
		for i := range containers {
			if i >= load.sending {
				containers[i].Load = Load{}
			}
		}
		cases = append(cases, Case{
			Group: group, Name: load.name, LinkBPS: options.RateBPS,
			Measures: MeasureAgent, Peers: []string{PeerWeir}, Containers: containers,
		})
	}
	name := func(count int) string { return fmt.Sprintf("%d containers", count) }
	counts := []int{1, 100, maxBedContainers}
	for _, count := range counts {
		one := Case{
			Group: "scale", Name: name(count),
			Measures: MeasureAgent | MeasureCost, Peers: []string{PeerWeir},
			Containers: slices.Repeat([]Container{{Policy: Policy{Weight: 1}}}, count),
		}
		for i := range one.Containers {
			one.Containers[i].Name = fmt.Sprintf("C%d", i+1)
		}
		one.Containers[0].Load = Load{Protocol: traffic.UDP, PayloadBytes: smallPayloadBytes, Flood: true}
		if count != counts[0] {
			one.Baseline = name(counts[0])
		}
		cases = append(cases, one)
	}
	return append(cases, watchedCases(options)...)
}

// watchedCases measure what it costs the agent to be looked at: pages of its dashboard,
// and scrapes of as many containers as a host may have, each beside the same without.
func watchedCases(options Options) []Case {
	if options.Readers == 0 {
		return nil
	}
	const scrapeInterval, enoughScrapes = 5 * time.Second, 4
	var cases []Case
	for _, pages := range []int{0, 1, options.Readers} {
		containers := randomContainers(options.Containers, options.Seed)
		for i := 5; i < len(containers); i++ {
			containers[i].Load = Load{}
		}
		cases = append(cases, Case{
			Group: fmt.Sprintf("looked at: %d containers, 5 send", options.Containers), Name: fmt.Sprintf("%d pages", pages), LinkBPS: options.RateBPS,
			Measures: MeasureAgent, Peers: []string{PeerWeir}, Containers: containers, Pages: pages, Dashboard: true,
		})
	}
	const alone = "without scrapes"
	for _, interval := range []time.Duration{0, scrapeInterval} {
		one := Case{
			Group: fmt.Sprintf("scrapes of %d containers", maxBedContainers), Name: alone, LinkBPS: options.RateBPS,
			Measures: MeasureAgent, Peers: []string{PeerWeir}, MinDuration: enoughScrapes * scrapeInterval,
			Containers: slices.Repeat([]Container{{Policy: Policy{Weight: 1}}}, maxBedContainers), ScrapeInterval: interval,
		}
		for i := range one.Containers {
			one.Containers[i].Name = fmt.Sprintf("C%d", i+1)
		}
		if interval > 0 {
			one.Name, one.Baseline = "scraped", alone
		}
		cases = append(cases, one)
	}
	return cases
}
