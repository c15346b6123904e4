package claim

// The papers, as pages name them.
const (
	PaperQCon     = "qCon (Sensors 2018)"
	PaperCNTC     = "CNTC (NPC 2019)"
	PaperLLQ      = "SDN-LLQ (IEEE Access 2017)"
	PaperNetmodes = "Network modes of IoT containers (2018)"
	PaperPicasso  = "PiCasso"
)
