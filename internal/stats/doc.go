// Package stats turns what the kernel counts into what people and programs
// read: counters that only grow, rates, one snapshot for all who look, and the
// events that lie between two snapshots.
//
// The kernel's counters are no good to a reader as they are. They begin again
// whenever a class is made again (somebody deleted the queueing, the uplink
// came back, the container got another number), some of them have 32 bits, and
// one number belongs to one container after the other. So every reading goes
// through a Ledger, which adds what was counted since the last one to the totals
// of the container (counter.go).
//
// The control loop publishes a Snapshot each period and does not wait for
// anybody (snapshot.go). Readers take the latest, as often and for as long as
// they like, and never enter the loop. The age of what they see tells them
// whether the loop is still at work. Events are the differences between one
// snapshot and the next (changes.go), kept for readers in a ring (events.go).
//
// Nothing here reads a clock or the kernel, but for Snapshot.AsOf's callers.
package stats
