package ovsdb

import (
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
)

// The tables of ovs-vswitchd.conf.db(5), with the columns that are used here.

type bridgeRow struct {
	UUID         string   `ovsdb:"_uuid"`
	Name         string   `ovsdb:"name"`
	Ports        []string `ovsdb:"ports"`
	DatapathID   *string  `ovsdb:"datapath_id"`
	DatapathType string   `ovsdb:"datapath_type"`
}

type portRow struct {
	UUID       string   `ovsdb:"_uuid"`
	Name       string   `ovsdb:"name"`
	Interfaces []string `ovsdb:"interfaces"`
	QoS        *string  `ovsdb:"qos"`
}

type interfaceRow struct {
	UUID      string `ovsdb:"_uuid"`
	Name      string `ovsdb:"name"`
	Type      string `ovsdb:"type"`
	OFPort    *int   `ovsdb:"ofport"`
	LinkSpeed *int   `ovsdb:"link_speed"`
	// Status has the device's driver as driver_name, where it has one.
	Status map[string]string `ovsdb:"status"`
	// IfIndex and MACInUse identify the network device.
	IfIndex  *int    `ovsdb:"ifindex"`
	MACInUse *string `ovsdb:"mac_in_use"`
}

type qosRow struct {
	UUID        string            `ovsdb:"_uuid"`
	Type        string            `ovsdb:"type"`
	Queues      map[int]string    `ovsdb:"queues"`
	OtherConfig map[string]string `ovsdb:"other_config"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

type queueRow struct {
	UUID        string            `ovsdb:"_uuid"`
	OtherConfig map[string]string `ovsdb:"other_config"`
	ExternalIDs map[string]string `ovsdb:"external_ids"`
}

func databaseModel() (model.ClientDBModel, error) {
	return model.NewClientDBModel("Open_vSwitch", map[string]model.Model{
		"Bridge": &bridgeRow{}, "Port": &portRow{}, "Interface": &interfaceRow{}, "QoS": &qosRow{}, "Queue": &queueRow{},
	})
}

// monitored returns the columns to mirror, because libovsdb stops mirroring when it
// receives a column that the model lacks.
func monitored() []client.MonitorOption {
	b, p, i, r, q := &bridgeRow{}, &portRow{}, &interfaceRow{}, &qosRow{}, &queueRow{}
	return []client.MonitorOption{
		client.WithTable(b, &b.Name, &b.Ports, &b.DatapathID, &b.DatapathType),
		client.WithTable(p, &p.Name, &p.Interfaces, &p.QoS),
		client.WithTable(i, &i.Name, &i.Type, &i.OFPort, &i.IfIndex, &i.MACInUse, &i.LinkSpeed, &i.Status),
		client.WithTable(r, &r.Type, &r.Queues, &r.OtherConfig, &r.ExternalIDs),
		client.WithTable(q, &q.OtherConfig, &q.ExternalIDs),
	}
}
