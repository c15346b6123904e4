# The learning switch of Ryu's and os-ken's own examples (simple_switch_13):
# OpenFlow 1.3, entries by port and MAC addresses, no classification.
import sys

from os_ken.lib import hub

hub.patch()

from os_ken import cfg
from os_ken.base import app_manager
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ether_types, ethernet, packet
from os_ken.ofproto import ofproto_v1_3


class LearningSwitch(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ports = {}

    def add(self, datapath, priority, match, actions):
        proto, parser = datapath.ofproto, datapath.ofproto_parser
        inst = [parser.OFPInstructionActions(proto.OFPIT_APPLY_ACTIONS, actions)]
        datapath.send_msg(parser.OFPFlowMod(datapath=datapath, priority=priority, match=match, instructions=inst))

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, ev):
        datapath = ev.msg.datapath
        proto, parser = datapath.ofproto, datapath.ofproto_parser
        self.add(datapath, 0, parser.OFPMatch(), [parser.OFPActionOutput(proto.OFPP_CONTROLLER, proto.OFPCML_NO_BUFFER)])

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, ev):
        msg = ev.msg
        datapath = msg.datapath
        proto, parser = datapath.ofproto, datapath.ofproto_parser
        in_port = msg.match["in_port"]
        eth = packet.Packet(msg.data).get_protocols(ethernet.ethernet)[0]
        if eth.ethertype == ether_types.ETH_TYPE_LLDP:
            return
        ports = self.ports.setdefault(datapath.id, {})
        ports[eth.src] = in_port
        out = ports.get(eth.dst, proto.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(out)]
        if out != proto.OFPP_FLOOD:
            self.add(datapath, 1, parser.OFPMatch(in_port=in_port, eth_dst=eth.dst, eth_src=eth.src), actions)
        datapath.send_msg(parser.OFPPacketOut(datapath=datapath, buffer_id=msg.buffer_id, in_port=in_port, actions=actions, data=msg.data))


if __name__ == "__main__":
    cfg.CONF(args=["--ofp-listen-host=127.0.0.1", "--ofp-tcp-listen-port=" + sys.argv[1]], project="os_ken")
    sys.modules["sdn_osken"] = sys.modules["__main__"]
    app_manager.AppManager.run_apps(["sdn_osken", "os_ken.controller.ofp_handler"])
