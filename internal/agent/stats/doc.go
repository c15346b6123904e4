// Package stats turns the kernel's counters into values for users and programs: totals that only
// grow, rates, one snapshot for all readers, and the events between two snapshots.
//
// The kernel's counters cannot be shown directly. They restart whenever a class is made again (its
// qdisc was deleted, the uplink came back, the container got another number), some have 32 bits,
// and one number belongs to several containers over time. So every reading goes through a Ledger,
// which adds the difference to the totals of the container (counter.go).
//
// The control loop publishes a Snapshot each period and waits for no reader (snapshot.go). Readers
// take the latest snapshot and never enter the loop; its age shows whether the loop still runs.
// Events are the differences between two snapshots (changes.go), kept in a ring (events.go).
//
// The package reads neither a clock nor the kernel: callers pass the time.
package stats
